package message_test

import (
	"fmt"
	"time"

	"github.com/carillonhq/carillon/dispatch/message"
	"github.com/carillonhq/carillon/internal/ident"
)

// A token is good for one tick of one tenant.
func ExampleMessages_Seal() {
	m := message.New(message.Config{LeaseKey: []byte("a key that all processes share")})
	tick := ident.TickKey{Schedule: 101, At: time.Date(2026, time.March, 8, 9, 0, 0, 0, time.UTC)}
	sealed := m.Seal(1, tick, message.Token{Lease: 55, Slot: 3, Attempt: 2})

	t, ok := m.Unseal(1, tick, sealed)
	fmt.Println(t.Lease, t.Slot, t.Attempt, ok)
	_, ok = m.Unseal(2, tick, sealed)
	fmt.Println("of another tenant:", ok)
	// Output:
	// 55 3 2 true
	// of another tenant: false
}

// A time in a message is in UTC and has whole seconds.
func ExampleAppendTime() {
	zone := time.FixedZone("", 9*60*60)
	b := message.AppendTime([]byte("at "), time.Date(2026, time.March, 8, 9, 0, 0, 0, zone))
	fmt.Println(string(b))
	// Output: at "2026-03-08T00:00:00Z"
}
