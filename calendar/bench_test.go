package calendar

import (
	"testing"
	"time"
)

func BenchmarkNext(b *testing.B) {
	for _, zone := range []string{"UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe"} {
		for _, cron := range []string{"* * * * *", "*/15 * * * *", "0 9 * * *", "0 9 * * 1-5", "0 0 1 * *", "0 0 29 2 *"} {
			b.Run(zone+"/"+cron, func(b *testing.B) {
				t := mustCompile(b, Spec{Timezone: zone, Cron: StringList{cron}})
				benchNext(b, t)
			})
		}
	}
}

// benchNext asks from instants spread over 2025 and 2026.
func benchNext(b *testing.B, t *Timing) {
	base := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	var at [1024]time.Time
	for i := range at {
		at[i] = base.Add(time.Duration(i*61681) * time.Second)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		t.Next(at[i&1023])
		i++
	}
}

func BenchmarkFloor(b *testing.B) {
	for _, zone := range []string{"UTC", "America/New_York", "Europe/Berlin"} {
		b.Run(zone, func(b *testing.B) {
			loc := Embedded().Location(zone)
			base := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
			i := 0
			for b.Loop() {
				l := base.Add(time.Duration(i&1023*61681) * time.Second).In(loc)
				y, m, d := l.Date()
				_ = time.Date(y, m, d+1, 9, 0, 0, 0, loc)
				i++
			}
		})
	}
}

func BenchmarkRule(b *testing.B) {
	for _, rule := range []string{"FREQ=DAILY", "FREQ=WEEKLY;BYDAY=MO,WE,FR", "FREQ=MONTHLY;BYDAY=-1FR", "FREQ=YEARLY", "FREQ=HOURLY", "FREQ=MINUTELY;INTERVAL=15", "FREQ=MINUTELY", "FREQ=DAILY;COUNT=100000"} {
		b.Run(rule, func(b *testing.B) {
			t := mustCompile(b, Spec{Timezone: "America/New_York", RRule: "DTSTART:20160101T090000\nRRULE:" + rule})
			benchNext(b, t)
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	spec := Spec{Timezone: "America/New_York", Cron: StringList{"0 9 * * 1-5"}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compile(spec, Context{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkHash(b *testing.B) {
	t := mustCompile(b, Spec{Timezone: "America/New_York", Cron: StringList{"0 9 * * 1-5"}})
	b.ReportAllocs()
	for b.Loop() {
		t.Hash()
	}
}

func BenchmarkFromCanonical(b *testing.B) {
	canonical := mustCompile(b, Spec{Timezone: "America/New_York", Cron: StringList{"0 9 * * 1-5"}}).Canonical()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := FromCanonical(canonical, Context{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWarnings(b *testing.B) {
	t := mustCompile(b, Spec{Timezone: "America/New_York", Cron: StringList{"30 2 * * 1-5"}})
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	b.ReportAllocs()
	for b.Loop() {
		t.Warnings(now)
	}
}
