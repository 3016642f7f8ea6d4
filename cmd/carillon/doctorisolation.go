package main

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/migrations"
)

// examineIsolation returns a finding for each gap in the isolation of tenants: a place where a query that does not name its tenant would
// read another tenant's rows. Without gaps it returns one finding.
func examineIsolation(ctx context.Context, pool *pgxpool.Pool, apiURL string) (findings []finding) {
	if pending, err := migrations.Pending(ctx, pool); err != nil || pending > 0 {
		return nil // the schema must be repaired first
	}
	login, apart := pool.Config().ConnConfig.User, apiURL != ""
	if apart {
		api, err := postgres.Open(ctx, apiURL, postgres.Options{Name: "carillon doctor", MaxConns: 1})
		if err != nil {
			return []finding{fine("isolation", "CARILLON_API_DATABASE_URL: %v", err).fail("correct this URL: the requests of tenants cannot reach the database with it")}
		}
		defer api.Close()
		login = api.Config().ConnConfig.User
	}
	gaps, tables, err := migrations.Gaps(ctx, pool, login, apart)
	if err != nil {
		return []finding{fine("isolation", "%v", err).fail("see the server's log")}
	}
	for _, g := range gaps {
		mend := "run: carillon migrate (it restores the roles, policies and grants even if no migration is pending)"
		if g.Mend != "" {
			mend = g.Mend
		}
		findings = append(findings, fine("isolation", "%s", g.What).fail(mend))
	}
	if len(gaps) > 0 {
		return findings
	}
	return []finding{fine("isolation", "row-level security isolates tenants on %d tables and partitions; it applies to requests, which run as %s", tables, postgres.APIRole)}
}
