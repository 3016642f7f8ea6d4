package carillon

import (
	"context"
	"iter"
)

// Unlisted says what a sync does with schedules of its scope that are stored and not listed.
type Unlisted string

// What a sync does with unlisted schedules. A schedule that a sync paused resumes when a later sync lists it.
const (
	KeepUnlisted   Unlisted = "keep"
	PauseUnlisted  Unlisted = "pause"
	DeleteUnlisted Unlisted = "delete"
)

// SyncParams name the scope of a sync, which is either Workflow or Label, and bound its changes.
type SyncParams struct {
	Workflow  string // the schedules of this workflow; a line may leave out its workflow
	KeyPrefix string // with Workflow: only those whose key begins with this text
	Label     string // "name:value": the schedules of all workflows with this label; each line has it

	// Free protects stored schedules that have another value of the label: a line for such a schedule is bad, and the schedule stays as it
	// is. Without Free the sync takes such a schedule into its scope.
	Free bool

	Unlisted  Unlisted // empty: KeepUnlisted
	DryRun    bool     // change nothing, and report what would change
	MaxChange string   // the most that may change of what is stored: a share such as "5%", or a number; empty: no limit

	Each       func(BulkResult) // called with the result of each line, in their order
	ErrorsOnly bool             // the server answers only lines with errors
}

// SyncReport is the end of a sync.
type SyncReport struct {
	SyncSummary `json:"summary"`
	Warnings    []Warning `json:"warnings"`
}

// SyncSummary counts the lines of a sync by their result, and the unlisted schedules that it paused or deleted.
type SyncSummary struct {
	Inserted   int `json:"inserted"`
	Updated    int `json:"updated"`
	Unchanged  int `json:"unchanged"`
	Duplicates int `json:"duplicates"`
	Errors     int `json:"errors"`
	Reconciled int `json:"reconciled"` // paused or deleted, since they are not listed
	Resumed    int `json:"resumed"`    // of the updated ones, those that an earlier sync had paused
}

// Sync makes the stored schedules of a scope those of lines, up to 1,000,000 of them. The server reads all lines before it changes anything.
// A bad line returns no error: the summary counts it, and unlisted schedules are then left alone. If the sync would change more than
// MaxChange allows, nothing changes and the error is ErrConflict, with the Summary. Sync sends the request once, without a timeout of its
// own; the same call again finishes what was cut.
func (s Schedules) Sync(ctx context.Context, lines iter.Seq[BulkLine], p SyncParams) (SyncReport, error) {
	q := query{}
	q.text("workflow", p.Workflow)
	q.text("key_prefix", p.KeyPrefix)
	q.text("label", p.Label)
	if p.Free {
		q.text("claim", "free")
	}
	q.text("unlisted", string(p.Unlisted))
	q.flag("dry_run", p.DryRun)
	q.text("max_change", p.MaxChange)
	q.results(p.ErrorsOnly)
	line := func(l BulkLine) ([]byte, error) {
		if l.Workflow == "" {
			l.Workflow = p.Workflow
		}
		return scheduleLine(l)
	}
	var report SyncReport
	err := upload[BulkLine, BulkResult]{path("schedules", "sync"), q, lines, line, p.Each}.send(ctx, s.c, &report)
	return report, err
}
