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

	"github.com/carillonhq/carillon/cmd/carillon/cli/profile"
	"github.com/carillonhq/carillon/internal/postgres/embedded"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/migrations"
	"github.com/carillonhq/carillon/tenants"
)

// devSettings are the settings of `carillon dev`.
type devSettings struct {
	Listen      address     `env:"CARILLON_LISTEN" envDefault:"127.0.0.1:8080" flag:"listen" value:"ADDRESS" help:"the address of the API: loopback only; port 0 is any free port"`
	Data        string      `env:"CARILLON_DATA" flag:"data" value:"FOLDER" help:"the folder that keeps the database and the keys between runs"`
	Ephemeral   bool        `env:"CARILLON_EPHEMERAL" flag:"ephemeral" help:"keep nothing between runs"`
	DatabaseURL databaseURL `env:"CARILLON_DEV_DATABASE_URL" secret:"true" flag:"database-url" value:"URL" help:"a PostgreSQL to use instead of a new one; carillon dev ignores DATABASE_URL"`
	Yes         bool        `env:"CARILLON_DEV_YES" flag:"yes" help:"use the database of --database-url even if it has tenants, processes or tables of others"`
	ReadyFile   string      `env:"CARILLON_READY_FILE" flag:"ready-file" value:"FILE" help:"a JSON file that gets url, token, platform_token and database_url when carillon dev is ready"`
	Profile     string      `env:"CARILLON_DEV_PROFILE" flag:"profile" value:"NAME" help:"the profile of the client's commands that leads here; without it dev, or none with --ephemeral or --ready-file"`
	For         span        `env:"CARILLON_FOR" envDefault:"0s" flag:"for" value:"DURATION" help:"stop this long after it is ready; 0s is never"`
	NoDemo      bool        `env:"CARILLON_NO_DEMO" flag:"no-demo" help:"do not create the demo schedules and their worker"`
	NoLoopback  bool        `env:"CARILLON_NO_LOOPBACK_ENDPOINTS" flag:"no-loopback-endpoints" help:"refuse endpoints and key sets on this machine, as carillon serve does"`
	LogFormat   format      `env:"CARILLON_LOG_FORMAT" envDefault:"text" flag:"log-format" value:"FORMAT" help:"the format of ticks and log lines: text or json"`
	LogLevel    level       `env:"CARILLON_LOG_LEVEL" envDefault:"warn" flag:"log-level" value:"LEVEL" help:"the least important level that is logged: debug, info, warn or error"`
	Traces      traceSettings
}

func (s devSettings) faults() []string {
	var lines []string
	if s.Listen != "" && !s.Listen.loopback() {
		lines = append(lines, fmt.Sprintf("CARILLON_LISTEN (--listen): %s can be reached from other machines, and carillon dev gives a token to every caller: use 127.0.0.1, or carillon serve", s.Listen))
	}
	if s.Ephemeral && s.Data != "" {
		lines = append(lines, "CARILLON_EPHEMERAL (--ephemeral) keeps nothing, so it excludes CARILLON_DATA (--data): choose one of them")
	}
	if s.Profile != "" && profile.CheckName(s.Profile) != nil {
		lines = append(lines, fmt.Sprintf("CARILLON_DEV_PROFILE (--profile): %v", profile.CheckName(s.Profile)))
	}
	return lines
}

func (p program) dev() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run everything on this machine, with nothing to set up",
		Long: `Starts a PostgreSQL (the installed one, or a downloaded one), creates the tables and the
tenant "demo", and serves the API on loopback. It prints a token, a curl command to paste,
and each tick when it fires. Without --no-demo there are some schedules and a worker.

The data is kept between runs: in the folder of --data, or else in /var/lib/carillon/dev for
root and in ~/.local/state/carillon/dev for others. The profile "dev" leads the client's
commands here, so that carillon schedule list works in the next terminal. Ctrl-C stops it within 10 seconds, a
second one at once.`,
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

// runDev starts each part after those that it uses, and stops them in the opposite order.
func (p program) runDev(ctx context.Context, s devSettings, chosen bool) (err error) {
	if s.ReadyFile != "" {
		if err := os.Remove(s.ReadyFile); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err // a file of an earlier run would say that this run is ready
		}
	}
	listener, err := listenDev(s.Listen, chosen)
	if err != nil {
		return err
	}
	defer listener.Close() // it is already closed, unless the start failed
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
		traces:      s.Traces,
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

// listenDev listens on the address. If its port is taken and the user did not choose it, any free port is used.
func listenDev(a address, chosen bool) (net.Listener, error) {
	l, err := listen(a)
	if err == nil || chosen {
		return l, err
	}
	host, _, _ := net.SplitHostPort(string(a))
	return listen(address(net.JoinHostPort(host, "0")))
}

// database returns the database that the settings name. Without one it starts a PostgreSQL and returns it as server. dir is the data
// folder, or "" if nothing is kept.
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
		fmt.Fprintln(p.stderr, "carillon dev ignores DATABASE_URL and uses its own database; to use another one, pass --database-url")
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

// stopServer stops PostgreSQL within the rest of the 10 s. After a shutdown that was cut off, the next start recovers.
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
	case <-time.After(time.Second): // the reader of our output has stopped reading; do not wait for it
	}
	return err
}

// mustLast is the shortest run of a restarted PostgreSQL. After a shorter one carillon dev gives up.
const mustLast = 10 * time.Second

// tend restarts our PostgreSQL when it ends by itself. It still has all acknowledged changes, and the other parts wait for it.
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
		d.log.Warn("the database ended, and is restarted", "error", why)
		if err := server.Restart(ctx); err != nil {
			return interrupted(ctx, errors.Join(why, err))
		}
		restarted = time.Now()
	}
}
