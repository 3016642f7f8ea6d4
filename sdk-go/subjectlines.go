package carillon

import (
	"context"
	"fmt"
	"iter"
)

// SubjectLine is one profile of a PutAll or of an Export: its subject and its params. IfMatch must be zero.
type SubjectLine struct {
	Subject string `json:"subject"`
	SubjectParams
}

// SubjectResult is the result of one line. Lines count from 1.
type SubjectResult struct {
	Line    int        `json:"line"`
	Result  string     `json:"result"`  // "inserted", "updated", "unchanged", "duplicate" or "error"
	Subject string     `json:"subject"` // empty if the line does not name it
	Error   *BulkFault `json:"error,omitempty"`
}

// SubjectBulkParams select the results and receive them.
type SubjectBulkParams struct {
	Each       func(SubjectResult) // called with each result, in the order of the lines, while more lines are sent
	ErrorsOnly bool                // the server answers only lines with errors
}

// PutAll puts up to 1,000,000 profiles in one request, by the rules of [Schedules.PutAll]. The schedules that follow a changed profile are
// retimed with it, by an operation where they are many.
func (s Subjects) PutAll(ctx context.Context, lines iter.Seq[SubjectLine], p SubjectBulkParams) (BulkReport, error) {
	q := query{}
	q.results(p.ErrorsOnly)
	var report BulkReport
	err := upload[SubjectLine, SubjectResult]{path("subjects", "bulk"), q, lines, subjectLine, p.Each}.send(ctx, s.c, &report)
	return report, err
}

// subjectLine returns the JSON of a line without line breaks.
func subjectLine(line SubjectLine) ([]byte, error) {
	if line.IfMatch != 0 {
		return nil, fmt.Errorf("carillon: the line of %s has a condition, which bulk does not take", line.Subject)
	}
	return encode(line)
}

// Export iterates over all profiles as lines that PutAll takes. An error comes once and ends the loop.
func (s Subjects) Export(ctx context.Context) iter.Seq2[SubjectLine, error] {
	return download[SubjectLine](ctx, s.c, path("subjects", "export"), query{})
}
