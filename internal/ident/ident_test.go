package ident_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillonhq/carillon/internal/ident"
)

func codec(t interface{ Fatal(...any) }, fill byte) ident.Codec {
	key := make([]byte, ident.KeySize)
	key[0] = fill
	c, err := ident.New(key)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestIDsComeBack(t *testing.T) {
	t.Parallel()
	c := codec(t, 1)
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.Int64Range(1, 1<<62).Draw(t, "id")
		if got, ok := c.ParseSchedule(c.Schedule(id)); !ok || got != id {
			t.Fatalf("schedule %d came back as %d, %v", id, got, ok)
		}
		k := ident.TickKey{
			Schedule: id,
			At:       time.Unix(rapid.Int64Range(0, 4102444800).Draw(t, "at"), 0).UTC(),
			Seq:      rapid.Int32Range(0, 1<<24-1).Draw(t, "seq"),
		}
		if got, ok := c.ParseTick(c.Tick(k)); !ok || got != k {
			t.Fatalf("%+v came back as %+v, %v", k, got, ok)
		}
	})
}

func TestForeignIDsAreNone(t *testing.T) {
	t.Parallel()
	c, other := codec(t, 1), codec(t, 2)
	for _, s := range []string{"", "sch_", "sch_x", other.Schedule(7), c.Schedule(7) + "0", c.Tick(ident.TickKey{Schedule: 7}), "SCH_" + c.Schedule(7)[4:]} {
		if id, ok := c.ParseSchedule(s); ok {
			t.Errorf("%q was read as schedule %d", s, id)
		}
	}
	for _, s := range []string{"", "tick_", c.Schedule(7)} {
		if k, ok := c.ParseTick(s); ok {
			t.Errorf("%q was read as tick %+v", s, k)
		}
	}
}
