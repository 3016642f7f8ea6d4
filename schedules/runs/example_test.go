package runs_test

import (
	"fmt"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules/runs"
)

// The sweep was down from Friday to Monday, so three daily times were missed. One run stands for them.
func ExampleBegin() {
	timing, err := calendar.Compile(calendar.Spec{Timezone: "Europe/Berlin", Cron: calendar.StringList{"0 9 * * *"}}, calendar.Context{})
	if err != nil {
		fmt.Println(err)
		return
	}
	friday := time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC) // 9:00 in Berlin
	monday := friday.Add(3 * 24 * time.Hour)
	run := runs.Begin(timing, friday, monday.Add(10*time.Minute), "last")
	fmt.Println("the run serves", run.At.Format("Mon 15:04"), "and stands for", run.Missed, "missed times, from", run.From.Format("Mon"))
	fmt.Println("the next is", run.Next.Format("Mon 15:04"))

	// A member that joined on Saturday evening has missed only Sunday.
	own, ok := run.For(timing, friday.Add(36*time.Hour), nil)
	fmt.Println("the member gets", own.At.Format("Mon 15:04"), "and has missed", own.Missed, ok)
	// Output:
	// the run serves Mon 08:00 and stands for 3 missed times, from Fri
	// the next is Tue 08:00
	// the member gets Mon 08:00 and has missed 1 true
}

// With jitter, a run reaches its members one after the other. Each run begins with another member, and is the same in every process.
func ExampleWalkOf() {
	timing, err := calendar.Compile(calendar.Spec{Cron: calendar.StringList{"0 9 * * *"}, Jitter: "10m"}, calendar.Context{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for day := 23; day < 25; day++ {
		nine := time.Date(2026, 11, day, 9, 0, 0, 0, time.UTC)
		walk, _ := runs.WalkOf(timing, runs.Begin(timing, nine, nine, "last"), "digest")
		for _, user := range []string{"ann", "bob", "cid"} {
			due := walk.Due(runs.PhaseOf("1/digest/" + user))
			fmt.Println(day, user, due.Format("15:04:05"))
		}
	}
	// Output:
	// 23 ann 09:06:47
	// 23 bob 09:00:15
	// 23 cid 09:00:36
	// 24 ann 09:03:50
	// 24 bob 09:07:18
	// 24 cid 09:07:39
}
