package carillontest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/carillonhq/carillon/internal/fault"
	carillon "github.com/carillonhq/carillon/sdk-go"
)

// line is a line of a body of definitions.
type line struct {
	number int
	name
	params
	err error // what is wrong with it
}

// readLines reads a body of definitions, one a line.
func readLines(r *http.Request) (all []line, err error) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	for i, one := range bytes.Split(text, []byte("\n")) {
		if len(bytes.TrimSpace(one)) > 0 {
			all = append(all, readLine(i+1, one))
		}
	}
	return all, nil
}

func readLine(number int, content []byte) (l line) {
	l.number = number
	var members map[string]json.RawMessage
	if err := decode(content, &members); err != nil {
		l.err = err
		return l
	}
	_ = json.Unmarshal(members["workflow"], &l.workflow) // a name that is not a string counts as empty
	l.key = "global"
	_ = json.Unmarshal(members["key"], &l.key)
	maps.DeleteFunc(members, func(member string, _ json.RawMessage) bool { return member == "workflow" || member == "key" })
	l.err = decode(encoded(members), &l.params)
	return l
}

// bulkAnswer is the answer to a body of definitions.
type bulkAnswer struct {
	lines
	sum carillon.SyncSummary
}

// add adds the result of a line.
func (a *bulkAnswer) add(q *query, r carillon.BulkResult, err error) {
	if f, is := errors.AsType[*fault.Error](err); is {
		r.Result, r.Error = "error", &carillon.BulkFault{Status: f.Status, Code: carillon.Code(f.Code), Detail: f.Detail}
		for _, one := range f.Fields {
			r.Error.Errors = append(r.Error.Errors, carillon.Field{Pointer: one.Pointer, Code: carillon.Code(one.Code), Detail: one.Detail})
		}
	}
	switch r.Result {
	case inserted:
		a.sum.Inserted++
	case updated:
		a.sum.Updated++
	case unchanged:
		a.sum.Unchanged++
	default:
		a.sum.Errors++
	}
	if r.Error != nil || q.Get("results") != "errors" {
		a.lines = append(a.lines, r)
	}
}

// bulk puts each line by itself. Unlike the API it has no batches, and so reports no duplicates.
func (s *Server) bulk(r *http.Request, _ []string) (any, error) {
	q := newQuery(r)
	all, err := readLines(r)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var a bulkAnswer
	for _, l := range all {
		result, err := s.putLine(l, q.Get("dry_run") == "true")
		a.add(q, result, err)
	}
	sum := carillon.BulkSummary{Inserted: a.sum.Inserted, Updated: a.sum.Updated, Unchanged: a.sum.Unchanged, Errors: a.sum.Errors}
	return append(a.lines, map[string]any{"summary": sum, "warnings": []carillon.Warning{}}), nil
}

// putLine stores the definition of a line. The caller holds the lock.
func (s *Server) putLine(l line, dry bool) (carillon.BulkResult, error) {
	result := carillon.BulkResult{Line: l.number, Workflow: l.workflow, Key: l.key}
	err := l.err
	if err == nil {
		err = checkNames(l.name)
	}
	if err == nil {
		result.Result, err = s.define(l.name, l.params, dry)
	}
	if h := s.schedules[l.name]; h != nil && err == nil {
		result.ScheduleID = h.id
	}
	return result, err
}

// scope names the schedules that a sync compares with its lines, and what the sync does with those that are not listed.
type scope struct {
	workflow, prefix, label, unlisted string
	dry                               bool
	most                              func(changed, stored int) bool
}

func readScope(q *query) scope {
	c := scope{workflow: q.Get("workflow"), prefix: q.Get("key_prefix"), label: q.Get("label"), unlisted: cmp.Or(q.Get("unlisted"), "keep"), dry: q.Get("dry_run") == "true"}
	switch {
	case c.label == "" && !validName(c.workflow):
		q.bad("workflow", "a workflow's name is 1 to 128 of A-Z a-z 0-9 . _ -")
	case c.label != "" && (c.workflow != "" || c.prefix != ""):
		q.bad("label", "a sync selects either a label or a workflow: omit label, or omit workflow and key_prefix")
	case c.unlisted != "keep" && c.unlisted != "pause" && c.unlisted != "delete":
		q.bad("unlisted", "%q is not one of keep, pause, delete", c.unlisted)
	}
	limit := q.Get("max_change")
	if share, ok := strings.CutSuffix(limit, "%"); ok {
		percent, err := strconv.ParseFloat(share, 64)
		if err != nil || !(percent >= 0 && percent <= 100) {
			q.bad("max_change", "%q is not between 0%% and 100%%", limit)
		}
		c.most = func(changed, stored int) bool { return float64(changed)*100 <= percent*float64(stored) }
	} else if limit != "" {
		number, err := strconv.Atoi(limit)
		if err != nil || number < 0 {
			q.bad("max_change", "%q is neither a share such as 5%% nor a number", limit)
		}
		c.most = func(changed, _ int) bool { return changed <= number }
	}
	return c
}

// has reports whether a schedule is in the scope.
func (c scope) has(h *schedule) bool {
	if c.label != "" {
		return h.hasLabel(c.label)
	}
	return h.workflow == c.workflow && strings.HasPrefix(h.key, c.prefix)
}

// refuse returns the fault of a line that is not in the scope.
func (c scope) refuse(l line) error {
	out := func(pointer, format string, args ...any) error {
		return fault.Fields(fault.Field{Pointer: pointer, Code: "out_of_scope", Detail: fmt.Sprintf(format, args...)})
	}
	label, value, labelled := strings.Cut(c.label, ":")
	has, there := l.Labels[label]
	switch {
	case labelled && (!there || has != value):
		return out("/labels", "this sync is for schedules with the label %q: add the label to the schedule", c.label)
	case labelled:
		return nil
	case l.workflow != c.workflow:
		return out("/workflow", "the sync is of workflow %q", c.workflow)
	case !strings.HasPrefix(l.key, c.prefix):
		return out("/key", "the sync is of keys that begin with %q", c.prefix)
	}
	return nil
}

// sync makes the stored schedules of a scope those that a body lists.
func (s *Server) sync(r *http.Request, _ []string) (any, error) {
	q := newQuery(r)
	q.only("workflow", "key_prefix", "label", "claim", "unlisted", "dry_run", "max_change", "results")
	c := readScope(q)
	if q.err != nil {
		return nil, q.err
	}
	all, err := readLines(r)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	stored := 0
	for _, h := range s.schedules {
		h.awaken()
		if c.has(h) {
			stored++
		}
	}
	warnings := []carillon.Warning{}
	if c.most != nil {
		planned := s.syncPass(q, c, all, true)
		if changed := planned.sum.Updated + planned.sum.Reconciled; !c.most(changed, stored) {
			detail := fmt.Sprintf("%d of %d schedules would be changed, and max_change does not allow it", changed, stored)
			if !c.dry {
				f := fault.Conflict("too_many_changes", "%s: nothing was changed", detail)
				f.Extra = map[string]any{"summary": planned.sum}
				return nil, f
			}
			warnings = append(warnings, carillon.Warning{Code: "too_many_changes", Detail: detail})
		}
	}
	a := s.syncPass(q, c, all, c.dry)
	if a.sum.Errors > 0 && c.unlisted != "keep" {
		warnings = append(warnings, carillon.Warning{Code: "unlisted_untouched", Detail: "what is not listed was left alone, as some lines are bad"})
	}
	return append(a.lines, map[string]any{"summary": a.sum, "warnings": warnings}), nil
}

// claimed returns the fault of a line whose stored schedule has another value of the scope's label.
func (c scope) claimed(l line, h *schedule) error {
	label, _, _ := strings.Cut(c.label, ":")
	if h == nil {
		return nil
	}
	if other, has := h.labels[label]; has && other != l.Labels[label] {
		return fault.Conflict("claimed", "the schedule belongs to another list: it has the label %s:%s", label, other)
	}
	return nil
}

// syncPass stores the lines of a sync, and pauses or deletes what is not listed. A dry pass only tells what would change.
func (s *Server) syncPass(q *query, c scope, all []line, dry bool) (a bulkAnswer) {
	listed, last := map[name]bool{}, map[name]int{}
	for i := range all {
		if all[i].workflow == "" {
			all[i].workflow = c.workflow
		}
		last[all[i].name] = i
	}
	for i, l := range all {
		if l.err == nil {
			l.err = c.refuse(l)
		}
		if l.err == nil && q.Get("claim") == "free" {
			l.err = c.claimed(l, s.schedules[l.name])
		}
		if l.err == nil && last[l.name] != i {
			a.sum.Duplicates++
			if q.Get("results") != "errors" {
				a.lines = append(a.lines, carillon.BulkResult{Line: l.number, Result: "duplicate", Workflow: l.workflow, Key: l.key})
			}
			continue
		}
		h := s.schedules[l.name]
		resumes := h != nil && h.bySync && l.Status == "" && h.wouldFire(l.params)
		if resumes {
			l.Status = active
		}
		result, err := s.putLine(l, dry)
		a.add(q, result, err)
		if resumes && err == nil {
			a.sum.Resumed++
		}
		listed[l.name] = true
	}
	if a.sum.Errors > 0 || c.unlisted == "keep" {
		return a
	}
	for of, h := range s.schedules {
		if listed[of] || !c.has(h) || c.unlisted == "pause" && h.status != active && h.pausedUntil == nil {
			continue
		}
		a.sum.Reconciled++
		switch {
		case dry:
		case c.unlisted == "delete":
			h.delete()
		default:
			fires := h.status == active
			_ = h.pause(nil, nil) // it is active or paused
			h.bySync = fires
		}
	}
	return a
}

// wouldFire reports whether a schedule that a sync paused has a nominal time left if it is resumed with a definition.
func (h *schedule) wouldFire(p params) bool {
	d, err := p.read()
	return err != nil || d.specText != h.specText || h.mayJoin(h.server.now, h.createdAt)
}
