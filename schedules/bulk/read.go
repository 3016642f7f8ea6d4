package bulk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// batch holds lines that are stored together: the result of each, and the good ones to store.
type batch struct {
	results []Result
	items   []*item
	places  map[[2]string]int // in items, by workflow and key
	stored  chan struct{}     // closed once it is
}

// item is a good line.
type item struct {
	schedules.Item
	place   int    // in the batch's results
	earlier *item  // the line before it with the same workflow and key
	text    []byte // the line, where it is to be staged
}

// reader reads lines into batches, and checks each line as far as that needs no lock in the database.
type reader struct {
	lineReader
	s       *Bulk
	tenant  tenants.ID
	reading *schedules.Reading
	specs   map[string]specRead // by the words of a line
	labels  map[string]map[string]string
	scope   *SyncParams // of a sync; nil: lines are of any schedule
}

func newReader(s *Bulk, tenant tenants.ID, body io.Reader) *reader {
	return &reader{
		lineReader: newLineReader(body), s: s, tenant: tenant, reading: s.schedules.NewReading(tenant),
		specs: map[string]specRead{}, labels: map[string]map[string]string{},
	}
}

// next returns the next batch, with io.EOF if it is the last. It returns no batch with any other error: a body that was not read to its
// end is not stored further.
func (r *reader) next(ctx context.Context) (*batch, error) {
	quotas, err := r.s.quotas(ctx, r.tenant)
	if err != nil {
		return nil, err
	}
	b := &batch{places: map[[2]string]int{}}
	r.reading.Refresh()
	for size := 0; len(b.results) < batchLines && size < batchBytes; {
		text, err := r.read()
		if err != nil && !errors.Is(err, errLongLine) {
			if errors.Is(err, io.EOF) {
				return b, io.EOF
			}
			return nil, err
		}
		if err == nil && len(bytes.TrimSpace(text)) == 0 && r.line <= mostLines {
			continue
		}
		result := Result{Line: r.line}
		if r.line > mostLines {
			result.Result, result.Error = schedules.Failed, faultOf(fault.New(413, "too_many_lines", "a call has at most %d lines: send this one and the rest in another", mostLines))
			b.results = append(b.results, result)
			return b, io.EOF
		}
		size += len(text)
		it := &item{place: len(b.results)}
		if err == nil {
			err = r.parse(ctx, it, text, quotas)
			result.Workflow, result.Key = it.Workflow, it.Key
			if err == nil && r.scope != nil {
				it.text = bytes.Clone(text)
			}
		}
		if err != nil {
			f, ok := errors.AsType[*fault.Error](err)
			if !ok {
				return nil, err
			}
			result.Result, result.Error = schedules.Failed, faultOf(f)
			b.results = append(b.results, result)
			continue
		}
		name := [2]string{it.Workflow, it.Key}
		if at, twice := b.places[name]; twice {
			it.earlier = b.items[at]
			b.results[it.earlier.place].Result = Duplicate
			b.items[at] = it
		} else {
			b.places[name] = len(b.items)
			b.items = append(b.items, it)
		}
		b.results = append(b.results, result)
	}
	return b, nil
}

// parse reads a line as Put reads its arguments.
func (r *reader) parse(ctx context.Context, it *item, text []byte, quotas tenants.Quotas) error {
	line, specText, err := r.members(text)
	if err != nil {
		return err
	}
	key := policy.GlobalKey
	if line.Key != nil {
		key = *line.Key
	}
	if line.Workflow == "" && r.scope != nil {
		line.Workflow = r.scope.Workflow
	}
	if policy.ValidName(line.Workflow) {
		it.Workflow = line.Workflow
	}
	if policy.ValidKey(key) {
		it.Key = key
	}
	if err := fault.Join(policy.CheckName("/workflow", "workflow", line.Workflow), policy.CheckKey("/key", key)); err != nil {
		return err
	}
	if r.scope != nil {
		it.Synced = true
		if r.scope.Claim == claimFree {
			it.Claims, _, _ = strings.Cut(r.scope.Label, ":")
		}
		if err := r.scope.outOfScope(line, key); err != nil {
			return err
		}
	}
	return r.reading.Define(ctx, &it.Item, line.Params, specText, quotas)
}

// specRead is a spec as it was sent, read, and as it is stored.
type specRead struct {
	spec calendar.Spec
	text string
}

// members reads a line. It reads a text that many lines have in common once.
func (r *reader) members(text []byte) (line Line, specText string, err error) {
	var spec, policy, delivery, labels, workflow, key, subject, note, status []byte
	err = web.Members[Line](text, func(name, value []byte) {
		switch string(name) {
		case "workflow":
			workflow = value
		case "key":
			key = value
		case "subject":
			subject = value
		case "spec":
			spec = value
		case "policy":
			policy = value
		case "delivery":
			delivery = value
		case "payload":
			line.Payload = bytes.Clone(value)
		case "labels":
			labels = value
		case "note":
			note = value
		case "status":
			status = value
		}
	})
	if err != nil {
		return line, "", err
	}
	known, ok := r.specs[string(spec)]
	if !ok {
		if err := readMember(spec, &known.spec); err != nil {
			return line, "", err
		}
		stored, err := json.Marshal(known.spec)
		if err != nil {
			return line, "", fmt.Errorf("write spec: %w", err)
		}
		known.text = string(stored)
		keep(r.specs, string(spec), known)
	}
	line.Spec, line.Noteless = known.spec, string(note) == "null"
	if line.Labels, ok = r.labels[string(labels)]; !ok {
		if err := readMember(labels, &line.Labels); err != nil {
			return line, "", err
		}
		keep(r.labels, string(labels), line.Labels)
	}
	return line, known.text, errors.Join(
		readMember(workflow, &line.Workflow), readMember(key, &line.Key), readMember(subject, &line.Subject), readMember(policy, &line.Policy), readMember(delivery, &line.Delivery),
		readMember(note, &line.Note), readMember(status, &line.Status))
}

// readMember reads a member of a line; one that was not sent leaves v as it is.
func readMember[T any](value []byte, v *T) (err error) {
	if value != nil {
		*v, err = web.Member[T](value)
	}
	return err
}

// keep remembers v by a text that is not long. If it remembers too many, it first forgets all.
func keep[T any](known map[string]T, text string, v T) {
	if len(text) > longestMemo {
		return
	}
	if len(known) == mostMemo {
		clear(known)
	}
	known[text] = v
}

// These bound what is remembered.
const (
	mostMemo    = 10_000
	longestMemo = 512
)
