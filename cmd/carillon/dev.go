package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/labstack/echo/v4"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/carillonhq/carillon/internal/postgres/embedded"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/migrations"
	"github.com/carillonhq/carillon/tenants"
)

// devSettings are all that `carillon dev` is told.
type devSettings struct {
	Listen      address     `env:"CARILLON_LISTEN" envDefault:"127.0.0.1:8080" flag:"listen" value:"ADDRESS" help:"where the API is served: loopback only, and port 0 is any that is free"`
	Data        string      `env:"CARILLON_DATA" flag:"data" value:"FOLDER" help:"the folder that the database and the keys are kept in between runs"`
	Ephemeral   bool        `env:"CARILLON_EPHEMERAL" flag:"ephemeral" help:"keep nothing between runs"`
	DatabaseURL databaseURL `env:"CARILLON_DEV_DATABASE_URL" secret:"true" flag:"database-url" value:"URL" help:"a PostgreSQL to use instead of one of our own; DATABASE_URL is not looked at"`
	Yes         bool        `env:"CARILLON_DEV_YES" flag:"yes" help:"use the database of --database-url also where it has tenants, processes or tables of others"`
	ReadyFile   string      `env:"CARILLON_READY_FILE" flag:"ready-file" value:"FILE" help:"a file to write url, token, platform_token and database_url to, as JSON, once ready"`
	For         span        `env:"CARILLON_FOR" envDefault:"0s" flag:"for" value:"DURATION" help:"end by itself that long after it is ready; 0s is never"`
	NoDemo      bool        `env:"CARILLON_NO_DEMO" flag:"no-demo" help:"do not seed schedules, nor work them off"`
	NoLoopback  bool        `env:"CARILLON_NO_LOOPBACK_ENDPOINTS" flag:"no-loopback-endpoints" help:"refuse endpoints and key sets on this machine, as carillon serve does"`
	LogFormat   format      `env:"CARILLON_LOG_FORMAT" envDefault:"text" flag:"log-format" value:"FORMAT" help:"how ticks and log lines are written: text or json"`
	LogLevel    level       `env:"CARILLON_LOG_LEVEL" envDefault:"warn" flag:"log-level" value:"LEVEL" help:"the least important log lines that are written: debug, info, warn or error"`
}

func (s devSettings) faults() []string {
	var lines []string
	if s.Listen != "" && !s.Listen.loopback() {
		lines = append(lines, fmt.Sprintf("CARILLON_LISTEN (--listen): %s can be reached from other machines, and carillon dev gives a token to anyone who asks: use 127.0.0.1, or carillon serve", s.Listen))
	}
	if s.Ephemeral && s.Data != "" {
		lines = append(lines, "CARILLON_EPHEMERAL (--ephemeral) keeps nothing, so CARILLON_DATA (--data) makes no sense with it: choose one")
	}
	return lines
}

func (p program) dev() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run everything on this machine, with nothing to set up",
		Long: `Starts a PostgreSQL of its own (installed, or downloaded), makes the tables and the tenant
"demo", serves the API on loopback and prints a token, a curl to paste and each tick as it
fires. A few schedules and a worker are there from the start, unless --no-demo.

The data is kept between runs, in /var/lib/carillon/dev for root and in
~/.local/state/carillon/dev for others, or where --data says. Ctrl-C ends it within 10
seconds, a second one at once.`,
		Example: `  carillon dev
  carillon dev --ephemeral --listen 127.0.0.1:0 --ready-file ready.json    # for tests
  carillon dev --data ./carillon-data --for 60s
  carillon dev --database-url postgres://localhost/carillon_dev`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := read[devSettings](p, cmd)
			if err != nil {
				return err
			}
			chosen := cmd.Flags().Changed("listen") || p.getenv("CARILLON_LISTEN") != ""
			return p.runDev(cmd.Context(), s, chosen)
		},
	}
	flags[devSettings](cmd)
	return cmd
}

// runDev builds from the ground up and takes down in the opposite order.
func (p program) runDev(ctx context.Context, s devSettings, chosen bool) (err error) {
	if s.ReadyFile != "" {
		if err := os.Remove(s.ReadyFile); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err // one of an earlier run would say that this one is ready
		}
	}
	listener, err := listenDev(s.Listen, chosen)
	if err != nil {
		return err
	}
	defer listener.Close() // it is closed by then, unless we never came to serve
	url, dir, server, err := p.database(ctx, s)
	if err != nil {
		return interrupted(ctx, err)
	}
	if server != nil {
		defer func() { err = errors.Join(err, stopServer(ctx, server)) }()
	}
	if _, err := migrations.Up(ctx, url, migrations.Options{}); err != nil {
		return interrupted(ctx, err)
	}
	keys, err := openDevKeys(dir)
	if err != nil {
		return err
	}
	log := p.log(s.LogFormat, s.LogLevel)
	ticks := newTickLines(p.stdout, s.LogFormat, p.coloured(p.stdout))
	h, err := wire(ctx, options{
		databaseURL: url,
		connections: 30,
		role:        "all",
		issuer:      devIssuer,
		keys:        []tenants.Key{keys.minter().Key()},
		minter:      new(keys.minter()),
		outbound:    web.Outbound{Loopback: !s.NoLoopback},
		onFired:     ticks.add,
		keyset:      keys.sealing(server != nil),
		log:         log,
		memory:      limitMemory(memlimit.FromCgroup, log),
		shed:        shedByPool,
	})
	if err != nil {
		return interrupted(ctx, err)
	}
	defer h.close()
	if _, err := tenants.Ensure(ctx, h.platform, demoTenant, tenants.Wide()); err != nil {
		return interrupted(ctx, err)
	}
	h.router.GET("/metrics", echo.WrapHandler(web.MetricsHandler(h.registry)))
	if err := h.dispatch.Start(ctx); err != nil {
		return interrupted(ctx, err)
	}
	d := dev{program: p, settings: s, url: "http://" + listener.Addr().String(), databaseURL: url, keys: keys, log: log}
	return d.run(ctx, h, listener, server, ticks)
}

// listenDev takes any free port where the usual one is taken and nobody asked for it.
func listenDev(a address, chosen bool) (net.Listener, error) {
	l, err := listen(a)
	if err == nil || chosen {
		return l, err
	}
	host, _, _ := net.SplitHostPort(string(a))
	return listen(address(net.JoinHostPort(host, "0")))
}

// database is the one that the settings name, or else one of our own, which is server. The folder is "" where nothing
// is to be kept.
func (p program) database(ctx context.Context, s devSettings) (url, dir string, server *embedded.Server, err error) {
	if !s.Ephemeral {
		if dir = s.Data; dir == "" {
			if dir, err = embedded.DefaultDir(); err != nil {
				return "", "", nil, err
			}
		}
	}
	if s.DatabaseURL != "" {
		if !s.Yes {
			err = mayDevelopOn(ctx, string(s.DatabaseURL))
		}
		return string(s.DatabaseURL), dir, nil, err
	}
	if p.getenv("DATABASE_URL") != "" {
		fmt.Fprintln(p.stderr, "carillon dev does not use the database of DATABASE_URL, but one of its own: --database-url names another")
	}
	config := embedded.Config{Ephemeral: s.Ephemeral, Log: p.stderr}
	if !s.Ephemeral {
		config.Dir = filepath.Join(dir, "postgres")
	}
	if server, err = embedded.Start(ctx, config); err != nil {
		return "", "", nil, err
	}
	if url, err = server.Create(ctx, "carillon"); err != nil {
		return "", "", nil, errors.Join(err, stopServer(ctx, server))
	}
	return url, dir, server, nil
}

// stopServer gives an orderly shutdown what is left of the 10 s; one that takes longer is recovered from at the next start.
func stopServer(ctx context.Context, server *embedded.Server) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 1500*time.Millisecond)
	defer cancel()
	return server.Stop(ctx)
}

// dev is a running `carillon dev`.
type dev struct {
	program
	settings    devSettings
	url         string
	databaseURL string
	keys        *devKeys
	log         *slog.Logger
}

func (d dev) run(ctx context.Context, a *app, listener net.Listener, database *embedded.Server, ticks *tickLines) error {
	if d.settings.For > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(d.settings.For))
		defer cancel()
	}
	parts, ctx := errgroup.WithContext(ctx)
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		ticks.write(ctx)
	}()
	parts.Go(func() error {
		return a.run(ctx, d.log, 0, server{listener, d.keys.endpoint(a.platform, a.router)})
	})
	parts.Go(func() error { return d.announce(ctx) })
	if !d.settings.NoDemo {
		parts.Go(func() error { return demo{d.url, d.keys, d.log}.run(ctx) })
	}
	if database != nil {
		parts.Go(func() error { return d.tend(ctx, database) })
	}
	err := parts.Wait()
	select {
	case <-shown:
	case <-time.After(time.Second): // whoever reads our output has stopped to, and must not keep us
	}
	return err
}

// mustLast is how long a PostgreSQL that we started again must last: one that does not cannot be helped.
const mustLast = 10 * time.Second

// tend starts our PostgreSQL again when it ends by itself: all that was acknowledged is in it, and the rest of us waits
// for it as for any other.
func (d dev) tend(ctx context.Context, server *embedded.Server) error {
	var restarted time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-server.Done():
		}
		why := server.Err()
		if !restarted.IsZero() && time.Since(restarted) < mustLast {
			return why
		}
		d.log.Warn("the database ended and is started again", "error", why)
		if err := server.Restart(ctx); err != nil {
			return interrupted(ctx, errors.Join(why, err))
		}
		restarted = time.Now()
	}
}
