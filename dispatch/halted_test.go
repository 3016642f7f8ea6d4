package dispatch_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules"
)

// haltNow halts the tenant in a connection of its own, and returns when that is acknowledged.
func (h *house) haltNow(pgx.Tx) {
	if _, err := h.dispatch.Control.Halt(postgres.ForTenant(h.t.Context(), int32(h.tenant)), h.tenant, control.HaltParams{}); err != nil {
		h.t.Error(err)
	}
}

// A tick is not handed out once a halt is acknowledged, though its opening read the tenant before. Whatever of the schedule is written
// meanwhile, no tick fires later than the halt.
func TestATickIsNotHandedOutUnderAHalt(t *testing.T) {
	t.Parallel()
	for change, sql := range map[string]string{
		"the halt alone":           `SELECT`,
		"the halt and the version": `UPDATE schedule SET version = 2, payload = '2', updated_at = clock_timestamp()`,
	} {
		t.Run(change, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.sweptDaily()
			h.openBehind(`LOCK TABLE schedule_state IN ACCESS EXCLUSIVE MODE`, func(tx pgx.Tx) {
				h.haltNow(tx)
				if _, err := tx.Exec(t.Context(), sql); err != nil {
					t.Error(err)
				}
			})
			if got := h.history("w", "k"); len(got) != 1 || got[0].State != "skipped" || got[0].Reason != "paused" {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// The same of a tick that is sent again: it waits until the halt ends.
func TestATickIsNotSentAgainUnderAHalt(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	if err := h.dispatch.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.schedules.PutWorkflow(t.Context(), h.tenant, "pulled", schedules.WorkflowParams{}); err != nil {
		t.Fatal(err)
	}
	h.put("pulled", "k", rarely("skip"))
	if _, _, err := h.dispatch.Control.Trigger(t.Context(), h.tenant, "pulled", "k", control.TriggerParams{}, once.Request{}); err != nil {
		t.Fatal(err)
	}
	h.sweepOnce(int16(h.number(`SELECT shard FROM schedule`)))
	h.openBehind(`SELECT FROM tick FOR UPDATE`, h.haltNow)
	if n := h.number(`SELECT count(*) FROM ready`); n != 0 {
		t.Errorf("%d ticks can be leased", n)
	}
	h.wantParked("", 1)
}
