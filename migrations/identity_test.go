package migrations_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/migrations"
)

func TestIdsOfTwoInstallationsNeverMeet(t *testing.T) {
	t.Parallel()
	url := postgrestest.EmptyURL(t)
	if _, err := migrations.Up(t.Context(), url, migrations.Options{Cell: new(3)}); err != nil {
		t.Fatal(err)
	}
	pool := open(t, url)
	rows, _ := pool.Query(t.Context(), `
		SELECT s.sequencename || ' ' || s.min_value || ' ' || s.max_value || ' ' || s.start_value
		FROM pg_sequences s
		WHERE s.schemaname = 'public' AND s.sequencename !~ '^(goose|river)'`)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(got) < 10 {
		t.Fatalf("got %v, %v", got, err)
	}
	for _, one := range got {
		want := " 52776558133249 70368744177663 52776558133249"
		if strings.HasPrefix(one, "tenant_") {
			want = " 3145729 4194303 3145729"
		}
		if !strings.HasSuffix(one, want) {
			t.Errorf("got %s, want%s", one, want)
		}
	}
	var id int
	if err := pool.QueryRow(t.Context(), `INSERT INTO tenant (name) VALUES ('acme') RETURNING id`).Scan(&id); err != nil || id != 3<<20+1 {
		t.Errorf("got tenant %d, %v", id, err)
	}

	if _, err := migrations.Up(t.Context(), url, migrations.Options{}); err != nil {
		t.Errorf("it does not stay in its cell: %v", err)
	}
	if err := pool.QueryRow(t.Context(), `INSERT INTO tenant (name) VALUES ('other') RETURNING id`).Scan(&id); err != nil || id != 3<<20+2 {
		t.Errorf("got tenant %d, %v", id, err)
	}
	if _, err := migrations.Up(t.Context(), url, migrations.Options{Cell: new(4)}); err == nil || !strings.Contains(err.Error(), "has given out ids as cell 3 and cannot become cell 4") {
		t.Errorf("moved to another cell: %v", err)
	}
	for _, cell := range []int{-1, migrations.MostCells} {
		if _, err := migrations.Up(t.Context(), url, migrations.Options{Cell: &cell}); err == nil || !strings.Contains(err.Error(), "from 0 to 511") {
			t.Errorf("cell %d: %v", cell, err)
		}
	}
}
