package calendars_test

import (
	"strings"
	"testing"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules/calendars"
	"github.com/carillonhq/carillon/schedules/schedulestest"
	"github.com/carillonhq/carillon/tenants"
)

// The list of zones and the changes of each say what a clock of the standard library shows with the same tz database.
func TestZonesAreThoseOfTheStandardLibrary(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	list := calendars.ListZones(now)
	if list.TZData != calendar.InForce().Version() || len(list.Items) < 400 {
		t.Fatalf("%d zones of %s", len(list.Items), list.TZData)
	}
	for _, z := range list.Items {
		location := calendar.InForce().Location(z.Timezone)
		if name, _ := now.In(location).Zone(); z.Offset != now.In(location).Format("-07:00") || z.Abbreviation != name {
			t.Errorf("got %+v", z)
		}
		if z.NextChange == nil {
			continue
		}
		before, after := z.NextChange.At.Add(-time.Second).In(location), z.NextChange.At.In(location)
		if before.Format("-07:00") != z.Offset || after.Format("-07:00") != z.NextChange.Offset || z.Offset == z.NextChange.Offset {
			t.Errorf("%s: got %+v", z.Timezone, z.NextChange)
		}
	}
	for _, name := range []string{"America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Kathmandu", "Europe/Dublin", "Africa/Monrovia"} {
		location := calendar.InForce().Location(name)
		from, to := time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
		got, err := calendars.TransitionsOf(name, from, to)
		if err != nil {
			t.Fatal(err)
		}
		changes := map[time.Time]calendars.Transition{}
		for _, one := range got.Transitions {
			changes[one.At] = one
		}
		seen := 0
		for at := from; at.Before(to); at = at.Add(15 * time.Minute) { // every clock changes at such a moment, but for one before 1972
			before, offset := at.Add(-time.Second).In(location).Zone()
			after, next := at.In(location).Zone()
			if before == after && offset == next {
				continue
			}
			one, ok := changes[at]
			if !ok {
				if name != "Africa/Monrovia" {
					t.Errorf("%s: the change at %s is not listed", name, at)
				}
				continue
			}
			seen++
			if one.Abbreviation != after || one.After != strings.TrimSuffix(at.In(location).Format("-07:00:00"), ":00") {
				t.Errorf("%s: got %+v", name, one)
			}
		}
		if seen != len(changes) && name != "Africa/Monrovia" {
			t.Errorf("%s: %d changes are listed, and a clock shows %d", name, len(changes), seen)
		}
	}
}

// A list stays until a zone changes, and is another from then on.
func TestAListOfZonesIsTrueAtItsMoment(t *testing.T) {
	t.Parallel()
	change := time.Date(2027, 3, 14, 7, 0, 0, 0, time.UTC) // in New York
	offset := func(at time.Time) string {
		for _, z := range calendars.ListZones(at).Items {
			if z.Timezone == "America/New_York" {
				return z.Offset
			}
		}
		return ""
	}
	if before, after := offset(change.Add(-time.Second)), offset(change); before != "-05:00" || after != "-04:00" {
		t.Errorf("got %s, then %s", before, after)
	}
}

func TestZonesOverHTTP(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	if got := e.Want(200, "", "GET", "/v1/zones", ""); len(got.Doc["items"].([]any)) < 400 {
		t.Errorf("got %.300s", got.Body)
	}
	got := e.Want(200, "", "GET", "/v1/zones/America%2FNew_York?from=2027-01-01T00:00:00Z&to=2028-01-01T00:00:00Z", "")
	if want := `"transitions":[{"at":"2027-03-14T07:00:00Z","before":"-05:00","after":"-04:00","abbreviation":"EDT"},{"at":"2027-11-07T06:00:00Z","before":"-04:00","after":"-05:00","abbreviation":"EST"}]`; !strings.Contains(got.Body, want) {
		t.Errorf("got %s", got.Body)
	}
	e.Want(200, "", "GET", "/v1/zones/UTC", "")
	e.Want(404, "not_found", "GET", "/v1/zones/Mars%2FOlympus", "")
	e.Want(404, "not_found", "GET", "/v1/zones/EST", "")
	for _, query := range []string{"from=now", "from=1969-01-01T00:00:00Z", "to=2101-01-01T00:00:00Z", "from=2027-01-01T00:00:00Z&to=2027-01-01T00:00:00Z", "from="} {
		e.Want(422, "invalid", "GET", "/v1/zones/UTC?"+query, "")
	}
}

// Any token may read zones, even one without a scope, and an answer that the client has already is 304.
func TestZonesAreForAnyTokenAndTagged(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	for _, path := range []string{"/v1/zones", "/v1/zones/Europe%2FParis?from=2027-01-01T00:00:00Z&to=2028-01-01T00:00:00Z"} {
		for _, token := range []string{e.Token("acme"), e.Token("", tenants.PlatformAdmin)} {
			tag := e.Want(200, "", "GET", path, "", "Authorization", "Bearer "+token).Header.Get("ETag")
			if again := e.Want(304, "", "GET", path, "", "If-None-Match", tag); again.Header.Get("ETag") != tag {
				t.Errorf("%s: got %q, then %v", path, tag, again.Header)
			}
			e.Want(412, "version_mismatch", "GET", path, "", "If-Match", `"1"`)
		}
	}
	paris := e.Want(200, "", "GET", "/v1/zones/Europe%2FParis", "").Header.Get("ETag")
	e.Want(200, "", "GET", "/v1/zones/Europe%2FBerlin", "", "If-None-Match", paris)
}
