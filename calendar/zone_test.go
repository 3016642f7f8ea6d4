package calendar

import (
	"bytes"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestCivilDaysAgreeWithTheStandardLibrary(t *testing.T) {
	t.Parallel()
	for day := minDay - 4000; day <= maxDay+800; day++ {
		want := time.Unix(int64(day)*daySeconds, 0).UTC()
		y, m, d := civil(day)
		if y != want.Year() || m != int(want.Month()) || d != want.Day() || weekday(day) != int(want.Weekday()) {
			t.Fatalf("day %d: got %d-%d-%d, want %s", day, y, m, d, want)
		}
		if dayNumber(y, m, d) != day {
			t.Fatalf("%d-%d-%d: got day %d, want %d", y, m, d, dayNumber(y, m, d), day)
		}
	}
}

func TestZonesAgreeWithTheStandardLibrary(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for _, name := range Embedded().Names() {
		z, loc := Embedded().zone(name), Embedded().Location(name)
		check := func(at int64) {
			_, want := time.Unix(at, 0).In(loc).Zone()
			if got := z.offset(z.find(at)); got != int64(want) {
				t.Fatalf("%s at %d: got offset %d, want %d", name, at, got, want)
			}
		}
		for _, at := range z.starts[1:] {
			check(at - 1)
			check(at)
		}
		for range 200 {
			check(r.Int64N(maxWall))
		}
	}
}

func TestEmbeddedZones(t *testing.T) {
	t.Parallel()
	z := Embedded()
	if z.Version() != "2026f" {
		t.Errorf("version %s, want 2026f", z.Version())
	}
	if n := len(z.Names()); n < 570 {
		t.Errorf("%d zones", n)
	}
	for _, name := range []string{"UTC", "Etc/UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "US/Eastern", "Cuba", "GMT"} {
		if !z.Has(name) {
			t.Errorf("no zone %s", name)
		}
	}
	for _, name := range []string{"", "Local", "EST", "CET", "+02:00", "UTC+2", "europe/berlin", "../etc/passwd", "Factory", "localtime", "+VERSION", "Europe/", "Europe"} {
		if z.Has(name) {
			t.Errorf("%q is a zone", name)
		}
	}
	// Vancouver stays on summer time from 2026 on.
	at := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	if got := at.In(z.Location("America/Vancouver")).Format(time.RFC3339); got != "2026-12-01T05:00:00-07:00" {
		t.Errorf("Vancouver shows %s", got)
	}
}

// testdata/zones-2025b.tar.gz holds the zones of 2025b that differ in 2026f, and Etc/UTC.
func TestDiffOfTwoVersions(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("testdata/zones-2025b.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	old, err := ReadZones(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if old.Version() != "2025b" {
		t.Errorf("version %s", old.Version())
	}
	got := map[string]string{}
	for _, c := range old.Diff(Embedded()) {
		got[c.Zone] = c.From.Format(time.DateOnly)
	}
	want := map[string]string{
		"Africa/Casablanca":   "2026-09-20",
		"Africa/El_Aaiun":     "2026-09-20",
		"America/Edmonton":    "2026-11-01",
		"America/Havana":      "2026-11-01",
		"America/Inuvik":      "2026-11-01",
		"America/Rainy_River": "2026-11-01",
		"America/Vancouver":   "2026-11-01",
		"America/Winnipeg":    "2026-11-01",
		"America/Yellowknife": "2026-11-01",
		"Canada/Central":      "2026-11-01",
		"Canada/Mountain":     "2026-11-01",
		"Canada/Pacific":      "2026-11-01",
		"Cuba":                "2026-11-01",
		"Europe/Chisinau":     "2022-03-27",
		"Europe/Tiraspol":     "2022-03-27",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if later := old.DiffSince(Embedded(), time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)); len(later) != 15 {
		t.Errorf("%d zones differ from now on, want 15: %v", len(later), later)
	}
	if same := Embedded().Diff(Embedded()); len(same) > 0 {
		t.Errorf("differs from itself: %v", same)
	}
}

func TestReadZonesRefusesWhatIsNoArchive(t *testing.T) {
	t.Parallel()
	for _, b := range [][]byte{nil, []byte("TZif"), embedded[:len(embedded)/2], bytes.Repeat([]byte{0x1f, 0x8b}, 100)} {
		if _, err := ReadZones(bytes.NewReader(b)); err == nil {
			t.Errorf("read %d bytes", len(b))
		}
	}
}

// A timing keeps the database that it was compiled with; what is compiled later takes the one in force.
func TestUseReplacesTheZonesInForce(t *testing.T) {
	b, err := os.ReadFile("testdata/zones-2025b.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	old, err := ReadZones(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	spec := Spec{Timezone: "America/Vancouver", Cron: StringList{"0 9 * * *"}}
	after := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	current := mustCompile(t, spec)
	Use(old)
	defer Use(nil)
	stale := mustCompile(t, spec)
	if got, _ := stale.Next(after); got.At.Hour() != 17 {
		t.Errorf("by 2025b: %s", got.At)
	}
	if got, _ := current.Next(after); got.At.Hour() != 16 {
		t.Errorf("by 2026f: %s", got.At)
	}
	if stale.Hash() != current.Hash() {
		t.Error("the hash depends on the database")
	}
}

func mustCompile(t testing.TB, s Spec) *Timing {
	t.Helper()
	timing, err := Compile(s, Context{})
	if err != nil {
		t.Fatal(err)
	}
	return timing
}
