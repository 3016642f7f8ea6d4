package subjects_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/schedulestest"
	"github.com/carillonhq/carillon/schedules/subjects"
)

// people is a model of subjects: which schedules there are, whom they are for, and which profiles there are. Workflow "with" has a
// fallback zone, and "without" has none.
type people struct {
	h         *schedulestest.Fixture
	names     []string // of subjects and of keys
	schedules map[policy.Name]*reminded
	profiles  map[string]subjects.SubjectParams
	changed   *int // counts changes of zones
}

type reminded struct{ subject, cron, label string }

const fallbackOfModel = "Asia/Kolkata"

// windowsOfModel are quiet hours. None hides a coming tick from those that are listed.
var windowsOfModel = []subjects.QuietWindows{
	nil,
	{{From: "22:00", To: "07:00"}},
	{{From: "21:00", To: "06:30", Then: "skip", Days: "1-5"}, {From: "00:00", To: "24:00", Days: "0"}},
}

// A subject's profile, cancellation, rename and erasure change exactly its own schedules, in any order.
func TestSubjectsAreAsTheirModel(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	if _, _, err := h.Schedules.PutWorkflow(t.Context(), h.Acme, "with", schedules.WorkflowParams{Fallback: new(fallbackOfModel)}); err != nil {
		t.Fatal(err)
	}
	checks, changed := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		checks++
		p := &people{h: h, schedules: map[policy.Name]*reminded{}, profiles: map[string]subjects.SubjectParams{}, changed: &changed}
		for i := range 4 {
			p.names = append(p.names, fmt.Sprintf("%d-%d", checks, i))
		}
		for range 12 {
			p.put(rt)
		}
		for range 15 {
			p.move(rt)
			p.compare(rt)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"put": p.put, "move": p.move, "move again": p.move, "cancel": p.cancel, "rename": p.rename, "erase": p.erase, "": p.compare,
		})
	})
	if t.Logf("%d changes of a zone", changed); changed < 50 {
		t.Errorf("only %d changes of a zone were drawn", changed)
	}
}

func (p *people) name(rt *rapid.T, what string) string {
	return rapid.SampledFrom(p.names).Draw(rt, what)
}

// zone returns the zone in which a subject's schedules of a workflow are timed; empty: there is none.
func (p *people) zone(workflow, subject string) string {
	if profile, ok := p.profiles[subject]; ok {
		return profile.Timezone
	}
	if workflow == "with" {
		return fallbackOfModel
	}
	return ""
}

func (p *people) put(rt *rapid.T) {
	of := policy.Name{Tenant: p.h.Acme, Workflow: rapid.SampledFrom([]string{"with", "without"}).Draw(rt, "workflow"), Key: p.name(rt, "key")}
	s := &reminded{
		subject: p.name(rt, "subject"), label: rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "label"),
		cron: fmt.Sprintf("%d %d * * *", rapid.IntRange(0, 59).Draw(rt, "minute"), rapid.IntRange(5, 20).Draw(rt, "hour")),
	}
	params := schedulestest.FollowingSubject(s.cron)
	params.Subject, params.Labels = s.subject, map[string]string{"kind": s.label}
	_, _, err := p.h.Schedules.Put(p.h.T.Context(), of, params, "ann", version.Precondition{})
	if p.zone(of.Workflow, s.subject) == "" {
		if f, ok := fault.Refusal(err); !ok || f.Code != "no_subject_zone" {
			rt.Fatalf("a schedule without a zone: got %v", err)
		}
		return
	}
	if err != nil {
		rt.Fatal(err)
	}
	p.schedules[of] = s
}

func (p *people) move(rt *rapid.T) {
	subject := p.name(rt, "subject")
	profile := subjects.SubjectParams{
		Timezone:   rapid.SampledFrom(calendar.InForce().Names()).Draw(rt, "zone"),
		QuietHours: rapid.SampledFrom(windowsOfModel).Draw(rt, "windows"),
	}
	if _, _, _, err := p.h.Subjects.PutSubject(p.h.T.Context(), p.h.Acme, subject, profile, "ann", version.Precondition{}); err != nil {
		rt.Fatal(err)
	}
	if was := p.profiles[subject].Timezone; was != profile.Timezone {
		*p.changed++
	}
	p.profiles[subject] = profile
}

func (p *people) cancel(rt *rapid.T) {
	subject, params := p.name(rt, "subject"), subjects.CancelParams{}
	if rapid.Bool().Draw(rt, "one workflow") {
		params.Workflow = "with"
	}
	if rapid.Bool().Draw(rt, "one label") {
		params.Label = "kind:a"
	}
	want := 0
	for of, s := range p.schedules {
		if s.subject == subject && (params.Workflow == "" || params.Workflow == of.Workflow) && (params.Label == "" || s.label == "a") {
			delete(p.schedules, of)
			want++
		}
	}
	got, _, _, err := p.h.Subjects.Cancel(p.h.T.Context(), p.h.Acme, subject, params, schedules.Changer{By: "ann"})
	if err != nil || got.Schedules != want {
		rt.Fatalf("got %+v and %v, want %d cancelled", got, err, want)
	}
}

// has reports whether a subject has a profile or schedules.
func (p *people) has(subject string) bool {
	_, profile := p.profiles[subject]
	return profile || slices.ContainsFunc(slices.Collect(maps.Values(p.schedules)), func(s *reminded) bool { return s.subject == subject })
}

func (p *people) rename(rt *rapid.T) {
	from, to := p.name(rt, "from"), p.name(rt, "to")
	if from == to {
		return
	}
	_, _, err := p.h.Subjects.Rename(p.h.T.Context(), p.h.Acme, from, subjects.RenameParams{To: to}, once.Request{})
	f, refused := fault.Refusal(err)
	switch {
	case p.has(to):
		if !refused || f.Code != "subject_in_use" && f.Code != "not_found" {
			rt.Fatalf("a name that is taken: got %v", err)
		}
	case !p.has(from): // what was cancelled may be left to rename
		if err != nil && (!refused || f.Code != "not_found") {
			rt.Fatal(err)
		}
	case err != nil:
		rt.Fatal(err)
	default:
		for _, s := range p.schedules {
			if s.subject == from {
				s.subject = to
			}
		}
		if profile, ok := p.profiles[from]; ok {
			p.profiles[to] = profile
			delete(p.profiles, from)
		}
	}
}

func (p *people) erase(rt *rapid.T) {
	subject := p.name(rt, "subject")
	if _, err := p.h.Subjects.Erase(p.h.T.Context(), p.h.Acme, subject, "ann", version.Precondition{}); err != nil {
		rt.Fatal(err)
	}
	delete(p.profiles, subject)
	maps.DeleteFunc(p.schedules, func(_ policy.Name, s *reminded) bool { return s.subject == subject })
}

// compare reads all schedules and profiles.
func (p *people) compare(rt *rapid.T) {
	for _, workflow := range []string{"with", "without"} {
		found := map[string]schedules.Schedule{}
		err := p.h.Schedules.Many(p.h.T.Context(), p.h.Acme, schedules.ManyParams{Workflow: workflow, Keys: p.names}, func(some []schedules.Schedule) error {
			for _, s := range some {
				found[s.Key] = s
			}
			return nil
		})
		if err != nil {
			rt.Fatal(err)
		}
		for _, key := range p.names {
			want, exists := p.schedules[policy.Name{Tenant: p.h.Acme, Workflow: workflow, Key: key}]
			got, is := found[key]
			if is != exists {
				rt.Fatalf("%s/%s is stored: %t, want %t", workflow, key, is, exists)
			}
			if !exists {
				continue
			}
			zone := p.zone(workflow, want.subject)
			next := p.h.NextOf(zone, want.cron)
			soon := got.NextAt != nil && got.NextAt.Before(time.Now().Add(time.Second)) // it came between the two reads
			if got.Subject != want.subject || got.TimezoneInForce != zone || got.Status != policy.Active || got.NextAt == nil || !got.NextAt.Equal(next) && !soon {
				rt.Fatalf("%s/%s: got subject %s in %s next %v, want %s in %s next %s", workflow, key, got.Subject, got.TimezoneInForce, got.NextAt, want.subject, zone, next)
			}
		}
	}
	for _, subject := range p.names {
		got, err := p.h.Subjects.Subject(p.h.T.Context(), p.h.Acme, subject)
		want, exists := p.profiles[subject]
		if exists != (err == nil) || exists && (got.Timezone != want.Timezone || len(got.QuietHours) != len(want.QuietHours)) {
			rt.Fatalf("the profile of %s: got %+v and %v, want %+v", subject, got, err, want)
		}
	}
}
