package schedules

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// lines is some lines that are stored together: what is known of each, and the good ones to store.
type lines struct {
	results []BulkResult
	items   []*item
	places  map[[2]string]int // in items, by workflow and key
	stored  chan struct{}     // closed once it is
}

// bulkReader reads lines into batches, holding each to what needs no database.
type bulkReader struct {
	s        *Schedules
	tenant   tenants.ID
	in       *bufio.Reader
	long     []byte
	line     int
	memo     *memo
	specs    map[string]specRead // by the words of a line
	labels   map[string]map[string]string
	anchor   time.Time
	almanacs map[string]*cohorts.CalendarSet // by the spec's calendars, for one batch
	scope    *SyncParams                     // of a sync; nil: lines are of any schedule
}

func newBulkReader(s *Schedules, tenant tenants.ID, body io.Reader) *bulkReader {
	return &bulkReader{s: s, tenant: tenant, in: bufio.NewReaderSize(body, 64<<10), memo: newMemo(), specs: map[string]specRead{}, labels: map[string]map[string]string{}, anchor: wholeSecond(time.Now())}
}

// next is the next batch, with io.EOF where it is the last. After any other error there is none: what was not read to
// its end is not stored.
func (r *bulkReader) next(ctx context.Context) (*lines, error) {
	quotas, err := r.s.Quotas(ctx, r.tenant)
	if err != nil {
		return nil, err
	}
	b := &lines{places: map[[2]string]int{}}
	r.almanacs = map[string]*cohorts.CalendarSet{}
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
		result := BulkResult{Line: r.line}
		if r.line > mostLines {
			result.Result, result.Error = Failed, bulkFault(fault.New(413, "too_many_lines", "a call has at most %d lines: send this one and the rest in another", mostLines))
			b.results = append(b.results, result)
			return b, io.EOF
		}
		size += len(text)
		it := &item{place: len(b.results)}
		if err == nil {
			err = r.parse(ctx, it, text, quotas)
			result.Workflow, result.Key = it.workflow, it.key
			if err == nil && r.scope != nil {
				it.text = bytes.Clone(text)
			}
		}
		if err != nil {
			f, ok := errors.AsType[*fault.Error](err)
			if !ok {
				return nil, err
			}
			result.Result, result.Error = Failed, bulkFault(f)
			b.results = append(b.results, result)
			continue
		}
		name := [2]string{it.workflow, it.key}
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
func (r *bulkReader) parse(ctx context.Context, it *item, text []byte, quotas tenants.Quotas) error {
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
		it.workflow = line.Workflow
	}
	if policy.ValidKey(key) {
		it.key = key
	}
	if err := fault.Join(policy.CheckName("/workflow", "workflow", line.Workflow), policy.CheckKey("/key", key)); err != nil {
		return err
	}
	if r.scope != nil {
		if err := r.scope.outOfScope(line.Workflow, key); err != nil {
			return err
		}
	}
	d, err := line.Params.readAs(specText, quotas)
	if names := cohorts.CalendarsOf(d.spec); len(names) > 0 {
		all := strings.Join(names, " ")
		if _, known := r.almanacs[all]; !known {
			a, err := r.s.Timings.CalendarsNow(ctx, r.s.Pool, r.tenant, names)
			if err != nil {
				return err
			}
			r.almanacs[all] = a
		}
		d.almanac = r.almanacs[all]
	}
	it.definition = d
	if cohorts.FollowsKey(d.spec) { // what it means is known once the profiles of the batch are
		return err
	}
	_, specErr := r.memo.compile(d, r.anchor, cohorts.Identity(r.tenant, it.workflow, it.key), func(*calendar.Timing) error { return nil })
	return fault.Join(err, specErr)
}

// specRead is a spec as it was sent, read, and as it is stored.
type specRead struct {
	spec calendar.Spec
	text string
}

// members reads a line. What many lines say in the same words is read once.
func (r *bulkReader) members(text []byte) (line BulkLine, specText string, err error) {
	var spec, policy, delivery, labels, workflow, key, note, status []byte
	err = web.Members[BulkLine](text, func(name, value []byte) {
		switch string(name) {
		case "workflow":
			workflow = value
		case "key":
			key = value
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
		readMember(workflow, &line.Workflow), readMember(key, &line.Key), readMember(policy, &line.Policy), readMember(delivery, &line.Delivery),
		readMember(note, &line.Note), readMember(status, &line.Status))
}

// readMember reads a member of a line; one that was not sent leaves v as it is.
func readMember[T any](value []byte, v *T) (err error) {
	if value != nil {
		*v, err = web.Member[T](value)
	}
	return err
}

// keep remembers v by a text that is not long, and forgets all else where that has become much.
func keep[T any](known map[string]T, text string, v T) {
	if len(text) > longestMemo {
		return
	}
	if len(known) == mostMemo {
		clear(known)
	}
	known[text] = v
}

// longestMemo bounds, with mostMemo, what is remembered.
const longestMemo = 512

var errLongLine = fault.New(413, "line_too_large", "a line has at most %d bytes", longestLine)

// read is the next line, without its end; errLongLine where it is too long to be kept.
func (r *bulkReader) read() (text []byte, err error) {
	r.long = r.long[:0]
	tooLong := false
	for {
		part, err := r.in.ReadSlice('\n')
		whole := err == nil || errors.Is(err, io.EOF)
		if !whole && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
		if errors.Is(err, io.EOF) && len(part) == 0 && len(r.long) == 0 && !tooLong {
			return nil, io.EOF
		}
		if tooLong = tooLong || len(r.long)+len(part) > longestLine; tooLong {
			r.long = r.long[:0]
		} else if !whole || len(r.long) > 0 {
			r.long = append(r.long, part...)
			part = r.long
		}
		if !whole {
			continue
		}
		r.line++
		if tooLong {
			return nil, errLongLine
		}
		return bytes.TrimSuffix(part, []byte("\n")), nil
	}
}
