package cli

import (
	"encoding/json"
	"slices"

	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
)

// specFields are the flags that describe when a schedule fires. They set members of /spec.
var specFields = []command.Field{
	{Flag: "cron", Pointer: "/spec/cron", Kind: command.Texts, Value: "CRON", Help: "five or six cron fields, such as \"0 8 * * 1-5\"; repeatable"},
	{Flag: "day-match", Pointer: "/spec/day_match", Value: "or|and", Help: "how cron combines day of month and day of week", Values: []string{"or", "and"}},
	{Flag: "every", Pointer: "/spec/intervals/0/every", Value: "DURATION", Help: "an interval, such as 5m or 2w"},
	{Flag: "offset", Pointer: "/spec/intervals/0/offset", Value: "DURATION", Help: "shifts the interval"},
	{Flag: "mode", Pointer: "/spec/intervals/0/mode", Value: "MODE", Help: "of the interval: aligned, fixed_rate or fixed_delay", Values: []string{"aligned", "fixed_rate", "fixed_delay"}},
	{Flag: "first", Pointer: "/spec/intervals/0/first", Value: "after|now", Help: "the first tick of the interval: after one interval, or now", Values: []string{"after", "now"}},
	{Flag: "rrule", Pointer: "/spec/rrule", Value: "RRULE", Help: "a recurrence rule (RFC 5545), with DTSTART"},
	{Flag: "at", Pointer: "/spec/at", Kind: command.Moments, Value: "TIME", Help: "one moment; repeatable"},
	{Flag: "timezone", Pointer: "/spec/timezone", Value: "ZONE", Help: "the zone of the spec, such as Europe/Paris or @subject", From: zoneNames},
	{Flag: "from", Pointer: "/spec/start_at", Kind: command.Moment, Value: "TIME", Help: "no tick before"},
	{Flag: "until", Pointer: "/spec/end_at", Kind: command.Moment, Value: "TIME", Help: "no tick from then on"},
	{Flag: "times", Pointer: "/spec/max_ticks", Kind: command.Number, Value: "N", Help: "end after so many ticks"},
	{Flag: "except", Pointer: "/spec/exclude/dates", Kind: command.Texts, Value: "DATE", Help: "a day without ticks, such as 2027-01-01; repeatable"},
	{Flag: "except-calendar", Pointer: "/spec/exclude/named", Kind: command.Texts, Value: "NAME", Help: "a calendar of days without ticks; repeatable", From: calendarNames},
	{Flag: "except-then", Pointer: "/spec/exclude/then", Value: "WHAT", Help: "what becomes of an excluded tick: drop, next or previous", Values: []string{"drop", "next", "previous"}},
	{Flag: "jitter", Pointer: "/spec/jitter", Value: "DURATION", Help: "delay each tick by a fixed part of this, to spread load"},
	{Flag: "gap", Pointer: "/spec/dst/gap", Value: "POLICY", Help: "when the clock skips the time: auto, skip, next_valid or shift_forward", Values: []string{"auto", "skip", "next_valid", "shift_forward"}},
	{Flag: "repeat", Pointer: "/spec/dst/overlap", Value: "POLICY", Help: "when the clock shows the time twice: auto, first, last or both", Values: []string{"auto", "first", "last", "both"}},
}

// policyFields are the flags that set members of /policy.
var policyFields = []command.Field{
	{Flag: "overlap", Pointer: "/policy/overlap", Value: "POLICY", Help: "when the last tick still runs: skip, buffer_one, buffer_all, cancel_other or allow_all", Values: []string{"skip", "buffer_one", "buffer_all", "cancel_other", "allow_all"}},
	{Flag: "missed", Pointer: "/policy/missed", Value: "POLICY", Help: "after an outage: last, all or none", Values: []string{"last", "all", "none"}},
	{Flag: "max-lateness", Pointer: "/policy/max_lateness", Value: "DURATION", Help: "a later tick is expired"},
	{Flag: "on-expired", Pointer: "/policy/on_expired", Value: "skip|deliver", Help: "what becomes of expired ticks", Values: []string{"skip", "deliver"}},
	{Flag: "pause-after-failures", Pointer: "/policy/pause_after_failures", Kind: command.Number, Value: "N", Help: "pause after so many failed ticks in a row; 0 is never"},
}

// deliveryFields are the flags that set members of /delivery.
var deliveryFields = []command.Field{
	{Flag: "queue", Pointer: "/delivery/queue", Value: "NAME", Help: "the queue of the workers"},
	{Flag: "priority", Pointer: "/delivery/priority", Kind: command.Number, Value: "N", Help: "1 (first) to 4"},
	{Flag: "attempt-timeout", Pointer: "/delivery/timeout", Value: "DURATION", Help: "how long one attempt may run"},
	{Flag: "max-attempts", Pointer: "/delivery/max_attempts", Kind: command.Number, Value: "N", Help: "how often a tick is tried"},
	{Flag: "keep-succeeded", Pointer: "/delivery/retention/succeeded", Value: "DURATION", Help: "how long succeeded ticks are kept"},
	{Flag: "keep-failed", Pointer: "/delivery/retention/failed", Value: "DURATION", Help: "how long failed ticks are kept"},
}

// scheduleFields are the other members of a schedule.
var scheduleFields = []command.Field{
	{Flag: "subject", Pointer: "/subject", Value: "SUBJECT", Help: "the person or thing that the schedule is for; without it the key", From: subjectNames},
	{Flag: "payload", Pointer: "/payload", Kind: command.JSON, Value: "JSON", Help: "what each tick carries; @FILE reads a file"},
	{Flag: "label", Pointer: "/labels", Kind: command.Members, Value: "NAME=VALUE", Help: "a label; repeatable"},
	{Flag: "note", Pointer: "/note", Value: "TEXT", Help: "a note for people"},
	{Flag: "paused", Pointer: "/status", Kind: command.Bool, Fixed: json.RawMessage(`"paused"`), Help: "store it paused"},
}

// wholeSchedule are the flags of a whole schedule.
var wholeSchedule = slices.Concat(specFields, policyFields, deliveryFields, scheduleFields)
