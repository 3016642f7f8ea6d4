package main

import (
	"testing"

	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/tenants"
)

func TestDoctorWarnsOfARetentionThatTheLockTableHasNoRoomFor(t *testing.T) {
	t.Parallel()
	pool := postgrestest.Database(t)
	if f := examineLocks(t.Context(), pool); f.Status != "ok" || f.Remedy != "" {
		t.Errorf("got %+v", f)
	}
	q := tenants.Wide()
	q.TickRetentionDays = 3650
	if _, err := tenants.Ensure(t.Context(), pool, "acme", q); err != nil {
		t.Fatal(err)
	}
	if f := examineLocks(t.Context(), pool); f.Status != "warning" || f.Remedy == "" {
		t.Errorf("got %+v", f)
	}
}
