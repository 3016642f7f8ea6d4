package main

import (
	"context"

	"github.com/carillonhq/carillon/internal/postgres/embedded"
)

// advised are the settings that deploy/postgresql.conf advises, as far as a load on one machine feels them.
var advised = []string{"shared_buffers=2GB", "work_mem=16MB", "max_wal_size=16GB", "checkpoint_timeout=15min", "random_page_cost=1.1"}

// database is the URL of the database that was named, or of an empty one in a server that lives until stop.
func database(ctx context.Context, o options, p *progress) (url string, stop func(), err error) {
	if o.databaseURL != "" {
		return o.databaseURL, func() {}, nil
	}
	server, err := embedded.Start(ctx, embedded.Config{Ephemeral: true, Log: p.out, Args: advised})
	if err != nil {
		return "", nil, err
	}
	stop = func() { _ = server.Stop(context.WithoutCancel(ctx)) } // nothing of it is kept
	if url, err = server.Create(ctx, "carillon"); err != nil {
		stop()
		return "", nil, err
	}
	return url, stop, nil
}
