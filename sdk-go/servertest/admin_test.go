package servertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

func TestTheSDKReadsWhatConcernsTheTenant(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), client(t)
	for _, zone := range []string{"Europe/Berlin", "America/New_York"} {
		must[carillon.Schedule](t)(c.Schedules.Put(ctx, "w", zone, carillon.Params{Spec: carillon.Cron("30 2 * * *").In(zone)}))
	}
	far := time.Now().UTC().Add(12 * time.Hour)
	for _, zone := range []string{"UTC", "Africa/Abidjan"} { // their clocks never change, so that each fires twice in 48 hours
		must[carillon.Schedule](t)(c.Schedules.Put(ctx, "daily", zone, carillon.Params{Spec: carillon.Cron(fmt.Sprintf("%d %d * * *", far.Minute(), far.Hour())).In(zone)}))
	}
	if got := must[carillon.Self](t)(c.Self(ctx)); got.Tenant == "" || len(got.Scopes) == 0 || got.ExpiresAt == nil || got.Quotas["schedules"].Limit == 0 {
		t.Errorf("got %+v", got)
	}
	if got := must[map[string]carillon.QuotaUse](t)(c.Admin.Quotas(ctx)); *got["schedules"].Used != 4 {
		t.Errorf("got %+v", got["schedules"])
	}
	if got := must[carillon.Overview](t)(c.Admin.Overview(ctx)); got.Firing.HaltedAt != nil || got.Backlog.Ready != 0 {
		t.Errorf("got %+v", got)
	}
	forecast := must[carillon.Forecast](t)(c.Admin.Forecast(ctx, carillon.ForecastParams{Hours: 48, Workflow: "daily", Group: []string{"workflow", "timezone"}}))
	if forecast.Ticks != 4 || len(forecast.Groups) != 2 || forecast.Groups[0].Count != 1 || forecast.Groups[0].Workflow != "daily" || forecast.Groups[0].Timezone == "" {
		t.Errorf("got %+v", forecast)
	}
	changes := must[carillon.ClockReport](t)(c.Admin.ClockChanges(ctx, carillon.ClockParams{Workflow: "w"})).Changes
	first := slices.IndexFunc(changes, func(c carillon.ClockChange) bool { return len(c.Effects) > 0 }) // New York skips 02:30, and does not repeat it
	if len(changes) < 2 || first < 0 || changes[first].Effects[0].Sample[0].Key == "" {
		t.Errorf("got %+v", changes)
	}
	series := must[carillon.Series](t)(c.Admin.Series(ctx, carillon.SeriesParams{From: time.Now().Add(-2 * time.Hour), Step: time.Hour, Workflow: "w"}))
	if len(series.Buckets) < 2 || series.Buckets[0].LatenessMS.P50 != nil {
		t.Errorf("got %+v", series)
	}
	if got := gather(t, c.Admin.Audit(ctx, carillon.AuditFilter{Action: "schedule.put", PageSize: 1})); len(got) != 4 || string(got[0].Before) != "null" {
		t.Errorf("got %+v", got)
	}
	for range c.Admin.Usage(ctx, carillon.UseFilter{ByDay: true, From: "2026-01-01"}) {
		t.Error("nothing was used")
	}
	if got := must[carillon.Firing](t)(c.Admin.Halt(ctx, carillon.HaltParams{Note: "maintenance"})); got.HaltedAt == nil || got.Note != "maintenance" {
		t.Errorf("got %+v", got)
	}
	if got := must[carillon.Firing](t)(c.Admin.Continue(ctx)); got.HaltedAt != nil {
		t.Errorf("got %+v", got)
	}
}

func TestTheSDKChangesWhatConcernsTheTenant(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), client(t)
	before := must[carillon.Settings](t)(c.Admin.Settings(ctx))
	changed := must[carillon.Settings](t)(c.Admin.PatchSettings(ctx, carillon.SettingsPatch{Merge: map[string]any{"fallback_timezone": "Asia/Tokyo"}, IfMatch: before.ETag}))
	if before.ETag == "" || before.FallbackTimezone != "" || changed.FallbackTimezone != "Asia/Tokyo" || changed.ETag == before.ETag {
		t.Errorf("got %+v, then %+v", before, changed)
	}
	if _, err := c.Admin.PatchSettings(ctx, carillon.SettingsPatch{IfMatch: before.ETag}); !errors.Is(err, carillon.CodeVersionMismatch) {
		t.Errorf("another version: got %v", err)
	}
	issuers := must[carillon.Issuers](t)(c.Admin.Issuers(ctx))
	own := carillon.SetIssuer{Issuer: carillon.Issuer{Issuer: "https://issuer.test", JWKSURI: "https://issuer.test/keys", Algorithms: []string{"ES256"}, Claims: &carillon.ClaimNames{Scope: "scp"}}}
	set := must[carillon.Issuers](t)(c.Admin.PutIssuers(ctx, carillon.IssuersParams{Issuers: append(issuers.Issuers, own), IfMatch: issuers.ETag}))
	if last := set.Issuers[len(set.Issuers)-1]; last.SetBy != "tenant" || last.Claims.Scope != "scp" {
		t.Errorf("got %+v", set)
	}
	if got := must[carillon.Issuers](t)(c.Admin.PutIssuers(ctx, carillon.IssuersParams{})); len(got.Issuers) != len(issuers.Issuers) {
		t.Errorf("got %+v", got)
	}
}

func TestTheSDKManagesAPIKeys(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), client(t)
	made := must[carillon.APIKey](t)(c.Admin.MakeAPIKey(ctx, carillon.APIKeyParams{Name: "ci", Scopes: []string{"schedules:read"}, Workflows: []string{"w"}}))
	if made.Key == "" || len(gather(t, c.Admin.APIKeys(ctx))) != 1 {
		t.Fatalf("got %+v", made)
	}
	with := func(config carillon.Config) *carillon.Client {
		t.Helper()
		config.URL, config.Retries = server.URL, -1
		other, err := carillon.New(config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(other.Close)
		return other
	}
	if got := must[carillon.Self](t)(with(carillon.Config{APIKey: made.Key}).Self(ctx)); got.Workflows[0] != "w" {
		t.Errorf("got %+v", got)
	}
	token := must[carillon.TokenAnswer](t)(c.Exchange(ctx, made.Key))
	if got := must[carillon.Self](t)(with(carillon.Config{Token: token.AccessToken}).Self(ctx)); got.Actor != made.ID {
		t.Errorf("got %+v", got)
	}
	if got := must[carillon.APIKey](t)(c.Admin.RotateAPIKey(ctx, made.ID)); got.Key == made.Key || got.PreviousExpiresAt == nil {
		t.Errorf("got %+v", got)
	}
	if err := c.Admin.DeleteAPIKey(ctx, made.ID); err != nil {
		t.Error(err)
	}
	if _, err := c.Exchange(ctx, made.Key); !errors.Is(err, carillon.CodeInvalidAPIKey) {
		t.Errorf("a deleted key: got %v", err)
	}
}

func TestTheSDKDeliversDeadLettersAgain(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), client(t)
	must[carillon.Schedule](t)(c.Schedules.Put(ctx, "w", "k", carillon.Params{Spec: carillon.Cron("0 0 1 1 *"), Policy: carillon.Policy{Overlap: "allow_all"}}))
	for range 2 {
		must[carillon.TickRecord](t)(c.Schedules.Trigger(ctx, "w", "k", carillon.TriggerParams{}))
	}
	p := carillon.LeaseParams{Workflows: []string{"w"}, Max: 1, Wait: time.Minute, Lease: time.Minute, Worker: "sdk"}
	for range 2 {
		tick := must[[]carillon.Tick[json.RawMessage]](t)(c.Ticks.Lease(ctx, p))[0]
		if err := c.Ticks.Fail(ctx, tick.TickID, tick.LeaseToken, carillon.Permanent(errors.New("mail server 12345 is away"))); err != nil {
			t.Fatal(err)
		}
	}
	filter := carillon.DeadFilter{Workflow: "w", Key: "k", From: ptr(time.Now().Add(-time.Hour)), To: ptr(time.Now().Add(time.Hour))}
	dead := gather(t, c.Admin.DeadLetters(ctx, filter))
	groups := must[carillon.DeadGroups](t)(c.Admin.DeadLetterGroups(ctx, filter))
	if len(dead) != 2 || len(groups.Items) != 1 || groups.Items[0].Count != 2 || groups.Items[0].Error != "mail server * is away" {
		t.Errorf("got %d dead letters in %+v", len(dead), groups)
	}
	if got := must[carillon.TickRecord](t)(c.Ticks.Replay(ctx, dead[0].TickID, carillon.ReplayParams{})); got.TickID != dead[0].TickID || got.EndedAt != nil {
		t.Errorf("got %+v", got)
	}
	if _, err := c.Ticks.Replay(ctx, dead[0].TickID, carillon.ReplayParams{}); !errors.Is(err, carillon.CodeTickNotFailed) {
		t.Errorf("a second replay: got %v", err)
	}
	all := carillon.DeadReplayParams{Filter: &carillon.DeadFilter{Workflow: "w"}}
	if got := must[carillon.DeadReplayPreview](t)(c.Admin.PreviewReplay(ctx, all)); got.Matched != 1 || got.Sample[0].TickID != dead[1].TickID {
		t.Errorf("got %+v", got)
	}
	begun := must[carillon.Operation](t)(c.Admin.ReplayDeadLetters(ctx, all))
	if got := must[carillon.Operation](t)(c.Operations.Wait(ctx, begun.ID, nil)); got.Counts["replayed"] != 1 {
		t.Errorf("got %+v", got)
	}
}
