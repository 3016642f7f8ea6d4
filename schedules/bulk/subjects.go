package bulk

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/subjects"
	"github.com/carillonhq/carillon/tenants"
)

// SubjectLine is a line of a bulk upsert of profiles: the body of a PUT, with its subject.
type SubjectLine struct {
	Subject string `json:"subject"`
	subjects.SubjectParams
}

// SubjectResult is what became of one line; lines count from 1. Subject is empty where the line does not tell it.
type SubjectResult struct {
	Line    int    `json:"line"`
	Result  string `json:"result"`
	Subject string `json:"subject"`
	Error   *Fault `json:"error,omitempty"`
}

// subjectBatch holds lines that are stored together.
type subjectBatch struct {
	results []SubjectResult
	items   []*subjects.Item
	places  []int          // of the items in results
	last    map[string]int // the last item of a subject
}

// UpsertSubjects stores the profile of each line of body as PutSubject would. Once a batch of lines is committed, it calls answer with
// their results. A bad line does not affect the others. Of lines in one batch with the same subject the last one counts.
func (s *Bulk) UpsertSubjects(ctx context.Context, tenant tenants.ID, by string, body io.Reader, answer func([]SubjectResult) error) (sum Summary, err error) {
	lines := newLineReader(body)
	for {
		b, readErr := nextSubjects(&lines)
		if readErr != nil && !errors.Is(readErr, io.EOF) {
			err = readErr
			break
		}
		if err = s.storeSubjects(ctx, tenant, by, b); err != nil {
			break
		}
		for _, r := range b.results {
			sum.count(Result{Result: r.Result})
		}
		if len(b.results) > 0 {
			err = answer(b.results)
		}
		if err != nil || readErr != nil {
			break
		}
	}
	changed := sum.Inserted + sum.Updated
	return sum, s.auditCall(ctx, caller{tenant, by}, "subjects/bulk", sum, changed, err)
}

// nextSubjects reads the next batch, with io.EOF if it is the last.
func nextSubjects(lines *lineReader) (*subjectBatch, error) {
	b := &subjectBatch{last: map[string]int{}}
	for size := 0; len(b.results) < batchLines && size < batchBytes; {
		text, err := lines.read()
		if err != nil && !errors.Is(err, errLongLine) {
			return b, err
		}
		if err == nil && len(bytes.TrimSpace(text)) == 0 && lines.line <= mostLines {
			continue
		}
		result := SubjectResult{Line: lines.line, Result: schedules.Failed}
		if lines.line > mostLines {
			result.Error = faultOf(fault.New(413, "too_many_lines", "a call has at most %d lines: send this one and the rest in another", mostLines))
			b.results = append(b.results, result)
			return b, io.EOF
		}
		size += len(text)
		var line SubjectLine
		if err == nil {
			err = web.Unmarshal(text, &line)
		}
		var it *subjects.Item
		if err == nil {
			it, err = subjects.Read(line.Subject, line.SubjectParams)
		}
		if subjects.Valid(line.Subject) {
			result.Subject = line.Subject
		}
		if f, refused := errors.AsType[*fault.Error](err); refused {
			result.Error = faultOf(f)
			b.results = append(b.results, result)
			continue
		}
		if err != nil {
			return b, err
		}
		result.Result = ""
		if at, twice := b.last[line.Subject]; twice {
			b.results[b.places[at]].Result = Duplicate
			b.items[at], b.places[at] = it, len(b.results)
		} else {
			b.last[line.Subject] = len(b.items)
			b.items, b.places = append(b.items, it), append(b.places, len(b.results))
		}
		b.results = append(b.results, result)
	}
	return b, nil
}

// storeSubjects stores the good lines of a batch.
func (s *Bulk) storeSubjects(ctx context.Context, tenant tenants.ID, by string, b *subjectBatch) error {
	if len(b.items) == 0 {
		return nil
	}
	if s.pace != nil {
		if err := s.pace(ctx, tenant, len(b.items)); err != nil {
			return err
		}
	}
	if err := tenants.CheckAuthority(ctx); err != nil {
		return err
	}
	if err := s.subjects.PutAll(ctx, tenant, by, b.items); err != nil {
		return err
	}
	for i, it := range b.items {
		r := &b.results[b.places[i]]
		r.Result = it.Result
		if it.Fault != nil {
			r.Error = faultOf(it.Fault)
		}
	}
	return nil
}
