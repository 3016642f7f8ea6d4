package postgrestest

import (
	"context"
	"testing"
	"time"

	"github.com/carillonhq/carillon/migrations"
)

func TestMain(m *testing.M) { MainNoLeaks(m) }

func TestEachTestHasItsOwnMigratedDatabase(t *testing.T) {
	t.Parallel()
	a, b := Database(t), Database(t)
	if pending, err := migrations.Pending(t.Context(), a); err != nil || pending != 0 {
		t.Errorf("got %d pending, %v", pending, err)
	}
	if _, err := a.Exec(t.Context(), `CREATE TABLE mine ()`); err != nil {
		t.Fatal(err)
	}
	var there bool
	if err := b.QueryRow(t.Context(), `SELECT to_regclass('mine') IS NOT NULL`).Scan(&there); err != nil || there {
		t.Errorf("got %v, %v in the other database", there, err)
	}
}

func TestInstantsAreInUTC(t *testing.T) {
	t.Parallel()
	var now time.Time
	if err := Database(t).QueryRow(t.Context(), `SELECT now()`).Scan(&now); err != nil || now.Location() != time.UTC {
		t.Errorf("got %v, %v", now, err)
	}
}

func TestAnotherServerIsLeftAsItWas(t *testing.T) {
	t.Parallel()
	first, err := shared.start()
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	const old = "carillon_test_1_abandoned_1"
	if err := first.exec(ctx, `CREATE DATABASE `+old); err != nil {
		t.Fatal(err)
	}
	other, err := startServer(ctx, first.url("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	name, err := other.clone(ctx, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.drop(ctx, name); err != nil {
		t.Error(err)
	}
	if err := other.stop(context.WithoutCancel(ctx)); err != nil {
		t.Error(err)
	}
	var left int
	if err := first.admin.QueryRow(ctx, `SELECT count(*) FROM pg_database WHERE datname = $1 OR starts_with(datname, $2)`, old, other.prefix).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d databases are left, %v", left, err)
	}
}

func BenchmarkDatabase(b *testing.B) {
	for b.Loop() {
		URL(b)
	}
}
