package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/internal/keyset"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/migrations"
	"github.com/jackc/pgx/v5/pgxpool"
)

// pools are the connections to the database. The API and the engine have a pool each, so that neither waits for a connection while the
// other is flooded, and so that no route of a tenant's can reach the rows of another.
type pools struct {
	cluster  *postgres.Cluster
	engine   *pgxpool.Pool        // all
	platform *pgxpool.Pool        // who the tenants are
	api      *postgres.TenantPool // a tenant's rows
}

// platformConnections are enough to look up tenants and keys, as the answers are remembered. Look-ups for callers that are
// not known take at most half of them.
const platformConnections = 4

// connect opens the pools. It refuses a database that is not up to date: else the first query would fail.
func connect(ctx context.Context, o options) (_ *pools, err error) {
	if err := current(ctx, o.databaseURL); err != nil {
		return nil, err
	}
	cluster := postgres.NewCluster()
	var opened []*pgxpool.Pool
	defer func() {
		if err != nil {
			for _, pool := range opened {
				pool.Close()
			}
		}
	}()
	engine, url := max(8, o.connections/2), cmp.Or(o.apiURL, o.databaseURL)
	for _, one := range []struct {
		url     string
		options postgres.Options
	}{
		{o.databaseURL, postgres.Options{Name: "carillon engine", MaxConns: int32(engine), Role: postgres.EngineRole}},
		{url, postgres.Options{Name: "carillon platform", MaxConns: platformConnections, Role: postgres.PlatformRole}},
		{url, postgres.Options{Name: "carillon api", MaxConns: int32(max(4, o.connections-engine-platformConnections)), Role: postgres.APIRole}},
	} {
		one.options.Cluster, one.options.CallTimeout = cluster, callTimeout
		pool, err := postgres.Open(ctx, one.url, one.options)
		if err != nil {
			return nil, err
		}
		opened = append(opened, pool)
	}
	return &pools{cluster: cluster, engine: opened[0], platform: opened[1], api: postgres.NewTenantPool(opened[2])}, nil
}

// callTimeout ends a call to the database whose context has no deadline.
const callTimeout = 10 * time.Second

// current refuses a database that lacks migrations, the roles of the pools among them.
func current(ctx context.Context, url string) error {
	pool, err := postgres.Open(ctx, url, postgres.Options{Name: "carillon", MaxConns: 1})
	if err != nil {
		return err
	}
	defer pool.Close()
	pending, err := migrations.Pending(ctx, pool)
	if err != nil {
		return fmt.Errorf("read the schema's version: %w", err)
	}
	if pending > 0 {
		return fmt.Errorf("the database lacks %d migrations of this version: run carillon migrate first", pending)
	}
	return nil
}

// ready is for /readyz: the database answers, takes writes, and has what this program needs.
func (db *pools) ready(ctx context.Context) error {
	var readOnly string
	if err := db.platform.QueryRow(ctx, `SELECT current_setting('transaction_read_only')`).Scan(&readOnly); err != nil {
		return err
	}
	if readOnly == "on" {
		return errors.New("the database takes no writes")
	}
	pending, err := migrations.Pending(ctx, db.platform)
	if err != nil {
		return err
	}
	if pending > 0 {
		return fmt.Errorf("%d migrations are pending", pending)
	}
	return nil
}

// warnOfSecrets tells at the start what a reader of the database could sign with, and what cannot be signed with.
func (db *pools) warnOfSecrets(ctx context.Context, k *keyset.Keyset, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if k == nil {
		log.Warn("secrets of endpoints are stored in the clear: set CARILLON_KEYSET to what carillon keyset prints")
	}
	s, err := push.Sealings(ctx, db.engine, k)
	if err != nil {
		log.Warn("cannot look at the secrets of endpoints", "error", err)
		return
	}
	if s.Unreadable > 0 {
		log.Error("CARILLON_KEYSET lacks keys that secrets of endpoints are sealed with, so their ticks are held", "secrets", s.Unreadable)
	}
}

func (db *pools) close() {
	db.api.Close()
	db.platform.Close()
	db.engine.Close()
}
