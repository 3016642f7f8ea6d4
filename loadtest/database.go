package main

import (
	"context"
	"fmt"
	"os"

	"github.com/carillonhq/carillon/internal/postgres/embedded"
)

// advised returns the settings of deploy/postgresql.conf that affect a load on one machine.
func advised() []string {
	return []string{
		fmt.Sprintf("shared_buffers=%dMB", max(128, memory()/4)),
		"work_mem=16MB", "max_wal_size=16GB", "checkpoint_timeout=15min", "random_page_cost=1.1",
	}
}

// memory returns the memory of the machine in MiB, or 0 if it is unknown.
func memory() int {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	var kib int
	if _, err := fmt.Sscanf(string(text), "MemTotal: %d kB", &kib); err != nil {
		return 0
	}
	return kib / 1024
}

// database returns the URL of the given database. Without one it starts a server with further settings and an empty database; stop ends it.
func database(ctx context.Context, o options, p *progress, settings ...string) (url string, stop func(), err error) {
	if o.databaseURL != "" {
		return o.databaseURL, func() {}, nil
	}
	server, err := embedded.Start(ctx, embedded.Config{Ephemeral: true, Log: p.out, Args: append(advised(), settings...)})
	if err != nil {
		return "", nil, err
	}
	stop = func() { _ = server.Stop(context.WithoutCancel(ctx)) } // its data is not needed any more
	if url, err = server.Create(ctx, "carillon"); err != nil {
		stop()
		return "", nil, err
	}
	return url, stop, nil
}
