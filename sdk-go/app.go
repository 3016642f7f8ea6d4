package carillon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// Global is the key of the only schedule of a workflow.
const Global = globalKey

// programLabel names the program that declares a schedule. [App.Sync] sets it, and changes only schedules that have it.
const programLabel = "carillon.program"

// AppConfig configures an [App]. The zero value is valid for a program that `go build` or `go run PACKAGE` has built.
type AppConfig struct {
	// Name names the program among all programs of the tenant. Sync changes only schedules that a program of this name declared, so that two
	// programs need two names, and all processes of a program need one. Empty: the path of the main package, such as
	// "example.com/shop/cmd/worker".
	Name string

	// Version is registered with each workflow that the program declares or handles, and comes with its ticks as WorkflowVersion. Empty: the
	// version of the main module, or the revision that it was built from; if the program has neither, no version is registered.
	Version string

	Unlisted  Unlisted // what Run does with schedules that the program no longer declares; empty: PauseUnlisted
	MaxChange string   // the most that Run may change of the stored schedules: a share such as "5%", or a number; empty: no limit

	Worker WorkerConfig
}

// App is what a program declares and handles: its schedules, and the functions that run their ticks. Declare and handle everything, then
// call Run, or Sync and a [Webhook]. Its methods are not for use by several goroutines at once.
type App struct {
	*handlers
	client   *Client
	config   AppConfig
	declared []*Declared
	places   map[[2]string]*Declared
	wrong    []error // declarations that cannot be sent
}

// NewApp returns an app that declares and handles nothing.
func NewApp(c *Client, config ...AppConfig) *App {
	a := &App{handlers: newHandlers(), client: c, places: map[[2]string]*Declared{}}
	if len(config) > 0 {
		a.config = config[0]
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		a.config.Name = cmp.Or(a.config.Name, nameOf(info))
		a.config.Version = cmp.Or(a.config.Version, versionOf(info))
	}
	a.config.Unlisted = cmp.Or(a.config.Unlisted, PauseUnlisted)
	if a.config.Worker.Log == nil {
		a.config.Worker.Log = slog.Default()
	}
	return a
}

// nameOf returns the path of the main package, or "" if it has none of its own: `go run FILE` names every program alike.
func nameOf(info *debug.BuildInfo) string {
	if info.Path == "command-line-arguments" {
		return ""
	}
	return info.Path
}

// versionOf returns the version of the main module or the revision that it was built from.
func versionOf(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	revision, modified := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "+dirty"
		}
	}
	if revision == "" {
		return ""
	}
	return revision + modified
}

// Declared is a schedule that a program declares. Sync sets its ID and Result.
type Declared struct {
	Workflow, Key string

	ID     string // empty before the first Sync, and if Sync failed for this schedule
	Result string // of the last Sync: "inserted", "updated", "unchanged" or "error"

	params Params
}

// Option is a part of a declaration besides its spec: a [Policy], a [Delivery], [Labels], [Payload], [Note] or [For].
type Option interface{ set(*Params) }

type option func(*Params)

func (o option) set(p *Params) { o(p) }

func (p Policy) set(to *Params) { to.Policy = p }

func (d Delivery) set(to *Params) { to.Delivery = d }

// Labels are names and values that come with each tick, and by which lists find schedules.
type Labels map[string]string

func (l Labels) set(to *Params) { to.Labels = l }

// Payload comes with each tick: any value that encoding/json can write.
func Payload(v any) Option { return option(func(p *Params) { p.Payload = v }) }

// Note is a remark for people who read the schedule.
func Note(text string) Option { return option(func(p *Params) { p.Note = &text }) }

// For names the person or thing that the schedule is for. Without it that is the key.
func For(subject string) Option { return option(func(p *Params) { p.Subject = subject }) }

// Declare adds a schedule to those that Sync stores. It sends nothing. Of several options of one kind the last counts.
func (a *App) Declare(workflow, key string, spec Spec, options ...Option) *Declared {
	d := &Declared{Workflow: workflow, Key: cmp.Or(key, Global), params: Params{Spec: spec}}
	for _, o := range options {
		o.set(&d.params)
	}
	place := [2]string{d.Workflow, d.Key}
	if a.places[place] != nil {
		a.wrong = append(a.wrong, fmt.Errorf("carillon: %s/%s is declared twice", d.Workflow, d.Key))
		return d
	}
	if _, ok := d.params.Labels[programLabel]; ok {
		a.wrong = append(a.wrong, fmt.Errorf("carillon: %s/%s: the label %s is that of Sync", d.Workflow, d.Key, programLabel))
	}
	a.places[place] = d
	a.declared = append(a.declared, d)
	return d
}

// SyncOptions bound what Sync does.
type SyncOptions struct {
	DryRun    bool   // change nothing, and report what would change
	MaxChange string // the most that may change of the program's stored schedules: a share such as "5%", or a number; empty: no limit
}

// DeclareError tells which declared schedules the server does not store. It stores the others.
type DeclareError struct {
	Failed []BulkResult
}

// Error names up to five of the schedules.
func (e *DeclareError) Error() string {
	text := fmt.Sprintf("carillon: %d declared schedules are not stored", len(e.Failed))
	for i, r := range e.Failed {
		if i == 5 {
			return text + "; …"
		}
		text += fmt.Sprintf("; %s/%s: %s", r.Workflow, r.Key, r.Error.refusal())
	}
	return text
}

// Unwrap returns the refusal of each schedule, an [*Error].
func (e *DeclareError) Unwrap() []error {
	all := make([]error, len(e.Failed))
	for i, r := range e.Failed {
		all[i] = r.Error.refusal()
	}
	return all
}

// refusal returns the error with which the server would refuse a Put of the line.
func (f *BulkFault) refusal() *Error {
	return &Error{Status: f.Status, Code: f.Code, Detail: f.Detail, Fields: f.Errors}
}

// Sync makes the stored schedules of the program those that it declares, and registers its version with their workflows. It inserts, updates
// or resumes declared schedules. Stored schedules that the program does not declare any more are kept, paused or deleted. A schedule that a
// sync paused resumes when it is declared again.
//
// Sync never changes the schedules of other programs or of the API: a declared schedule that another program declares too is an error with
// the code claimed. It registers the version by a patch, so that rates, holds and endpoints that operators set remain.
//
// If some declared schedules are refused, the error is a [*DeclareError], and what is not declared is left alone. If MaxChange is exceeded,
// nothing changes and the error is ErrConflict.
func (a *App) Sync(ctx context.Context, unlisted Unlisted, options ...SyncOptions) (SyncReport, error) {
	if err := a.check(); err != nil {
		return SyncReport{}, err
	}
	p := SyncParams{Label: programLabel + ":" + a.config.Name, Free: true, Unlisted: unlisted}
	if len(options) > 0 {
		p.DryRun, p.MaxChange = options[0].DryRun, options[0].MaxChange
	}
	if !p.DryRun {
		if err := a.register(ctx); err != nil {
			return SyncReport{}, err
		}
	}
	var failed []BulkResult
	p.Each = func(r BulkResult) {
		if d := a.places[[2]string{r.Workflow, r.Key}]; d != nil {
			d.ID, d.Result = r.ScheduleID, r.Result
		}
		if r.Error != nil {
			failed = append(failed, r)
		}
	}
	report, err := a.client.Schedules.Sync(ctx, a.lines(), p)
	if err == nil && failed != nil {
		err = &DeclareError{failed}
	}
	return report, err
}

func (a *App) check() error {
	if a.config.Name == "" {
		return errors.New("carillon: the program has no name: set AppConfig.Name, by which Sync tells its schedules from those of other programs")
	}
	return errors.Join(a.wrong...)
}

// lines returns the declared schedules with the label of the program.
func (a *App) lines() iter.Seq[BulkLine] {
	return func(yield func(BulkLine) bool) {
		for _, d := range a.declared {
			line := BulkLine{Workflow: d.Workflow, Key: d.Key, Params: d.params}
			line.Labels = make(map[string]string, len(d.params.Labels)+1)
			maps.Copy(line.Labels, d.params.Labels)
			line.Labels[programLabel] = a.config.Name
			if !yield(line) {
				return
			}
		}
	}
}

// register registers the version of the program with its workflows.
func (a *App) register(ctx context.Context) error {
	if a.config.Version == "" {
		return nil
	}
	names := a.workflows()
	for _, d := range a.declared {
		names = append(names, d.Workflow)
	}
	slices.Sort(names)
	patch := MergePatch{Merge: map[string]string{"version": a.config.Version}}
	for _, workflow := range slices.Compact(names) {
		_, err := a.client.Workflows.Patch(ctx, workflow, patch)
		if errors.Is(err, ErrNotFound) {
			_, err = a.client.Workflows.Put(ctx, workflow, WorkflowParams{Version: a.config.Version, IfAbsent: true})
			if errors.Is(err, ErrPrecondition) { // another process has made it meanwhile
				_, err = a.client.Workflows.Patch(ctx, workflow, patch)
			}
		}
		if err != nil {
			return fmt.Errorf("carillon: register version %s of workflow %q: %w", a.config.Version, workflow, err)
		}
	}
	return nil
}

// Run syncs what is declared, and then works as a [Worker] until ctx ends: see [Worker.Run]. It begins the sync again, for at most a
// minute, while the server cannot be reached. A program that handles nothing returns after the sync.
func (a *App) Run(ctx context.Context) error {
	log := a.config.Worker.Log
	for began, troubles := time.Now(), 0; ; troubles++ {
		report, err := a.Sync(ctx, a.config.Unlisted, SyncOptions{MaxChange: a.config.MaxChange})
		if err == nil {
			log.InfoContext(ctx, "schedules synced", "program", a.config.Name, "inserted", report.Inserted, "updated", report.Updated,
				"unchanged", report.Unchanged, "unlisted", report.Reconciled, "resumed", report.Resumed)
			break
		}
		if ctx.Err() != nil || !passes(err) || time.Since(began) > longestRefusal {
			return err
		}
		log.WarnContext(ctx, "cannot sync schedules", "error", err)
		wait(ctx, firstBackoff+pauseAfter(err, min(troubles, longestTrouble)))
	}
	if len(a.of) == 0 {
		return nil
	}
	return a.worker().Run(ctx)
}

// passes reports whether the same sync may succeed later: the server or the connection failed, and the request was not refused.
func passes(err error) bool {
	if refused, ok := asType[*Error](err); ok {
		return refused.passing() || refused.Status >= http.StatusInternalServerError
	}
	_, network := asType[interface {
		error
		Timeout() bool
	}](err)
	return network || errors.Is(err, ErrCut)
}

func (a *App) worker() *Worker {
	w := NewWorker(a.client, a.config.Worker)
	w.handlers = a.handlers
	return w
}

// Webhook returns a webhook that runs pushed ticks by the functions of the app.
func (a *App) Webhook(config WebhookConfig) (*Webhook, error) {
	h, err := NewWebhook(config)
	if err != nil {
		return nil, err
	}
	h.handlers = a.handlers
	h.chained = sync.OnceValue(a.chain)
	return h, nil
}
