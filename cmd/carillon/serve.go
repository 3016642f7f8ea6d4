package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/carillonhq/carillon/internal/web"
)

// serveSettings are the settings of `carillon serve`.
type serveSettings struct {
	DatabaseURL   databaseURL `env:"DATABASE_URL,required" secret:"true" flag:"database-url" value:"URL" help:"the PostgreSQL to work on, which carillon migrate has brought up to date: postgres://user:password@host:5432/database"`
	APIURL        databaseURL `env:"CARILLON_API_DATABASE_URL" secret:"true" help:"the same PostgreSQL, with a user for the requests of tenants: a member of carillon_api and carillon_platform and of no other role; without it requests log in as the user of DATABASE_URL and then take on these roles"`
	Role          role        `env:"CARILLON_ROLE" envDefault:"all" flag:"role" value:"PART" help:"the work of this process: all, api, sweep or dispatch"`
	Listen        address     `env:"CARILLON_LISTEN" envDefault:":8080" flag:"listen" value:"ADDRESS" help:"the address of the API and the probes"`
	TLSCert       string      `env:"CARILLON_TLS_CERT_FILE" flag:"tls-cert" value:"FILE" help:"the TLS certificate of the API and the probes, with its chain, as PEM; a changed file is read within seconds"`
	TLSKey        string      `env:"CARILLON_TLS_KEY_FILE" flag:"tls-key" value:"FILE" help:"the private key of that certificate, as PEM"`
	MetricsListen address     `env:"CARILLON_METRICS_LISTEN" envDefault:"127.0.0.1:9090" flag:"metrics-listen" value:"ADDRESS" help:"the address of /metrics, for Prometheus"`
	Proxies       networks    `env:"CARILLON_TRUSTED_PROXIES" flag:"trusted-proxies" value:"NETWORKS" help:"the networks of trusted proxies, separated by commas: their X-Forwarded-For gives the client's address for the log, the audit and limits: 10.0.0.0/8"`
	Drain         span        `env:"CARILLON_DRAIN" envDefault:"0s" flag:"drain" value:"DURATION" help:"how long the process goes on after SIGTERM while /readyz answers 503, so that load balancers send it no new requests"`
	Connections   count       `env:"CARILLON_CONNECTIONS" envDefault:"30" flag:"connections" value:"NUMBER" help:"the most connections to PostgreSQL that this process opens"`
	TZData        string      `env:"CARILLON_TZDATA" flag:"tzdata" value:"FILE" help:"a newer tz database than the built-in one: an archive that calendar/tzdata/remake.sh made"`
	Keyset        sealing     `env:"CARILLON_KEYSET" secret:"true" help:"the keys that encrypt the signing secrets and header values of endpoints: the output of carillon keyset; role sweep needs none"`
	ClearSecrets  bool        `env:"CARILLON_CLEAR_SECRETS" flag:"clear-secrets" help:"store the secrets of endpoints in the clear if CARILLON_KEYSET is not set"`
	NoDocs        bool        `env:"CARILLON_NO_DOCS" flag:"no-docs" help:"do not serve the reference page /docs; /openapi.yaml is still served"`
	NoConsole     bool        `env:"CARILLON_NO_CONSOLE" flag:"no-console" help:"do not serve /console, the operator's page"`
	Outbound      outboundSettings
	Platform      issuerSettings
	Traces        traceSettings
	Log           logSettings
}

// faults returns mistakes that concern several settings together.
func (s serveSettings) faults() []string {
	var lines []string
	if s.Role != "sweep" && s.Role != "dispatch" && !s.Platform.IssuerKey.given && !s.Platform.IssuerKeys.given {
		lines = append(lines, "CARILLON_ISSUER_KEY or CARILLON_ISSUER_KEYS is needed: without a key of the platform's issuer no token can be verified")
	}
	if (s.TLSCert == "") != (s.TLSKey == "") {
		lines = append(lines, "CARILLON_TLS_CERT_FILE (--tls-cert) and CARILLON_TLS_KEY_FILE (--tls-key) must both be set, or neither")
	}
	if s.Role != "sweep" && !s.Keyset.given && !s.ClearSecrets {
		lines = append(lines, "CARILLON_KEYSET is needed: make one with carillon keyset and give it to all processes. To store the secrets of endpoints in the clear, pass --clear-secrets")
	}
	return lines
}

// count is a number from 1 to 10,000.
type count int

func (n *count) UnmarshalText(text []byte) error {
	v, err := strconv.Atoi(string(text))
	if err != nil || v < 1 || v > 10_000 {
		return fmt.Errorf("%q is not a number from 1 to 10000", text)
	}
	*n = count(v)
	return nil
}

func (p program) serve() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve on your own PostgreSQL",
		Long: `Serves the API, sweeps due schedules and delivers their ticks, on the database that
DATABASE_URL names. Run any number of processes, on any number of machines: they share the
work, and when one ends, the others take over within seconds. With --role a process does
only one part.

SIGTERM and Ctrl-C stop it within 10 seconds: requests in flight finish, and the other
processes do the rest. A second signal stops it at once. With --drain it first goes on for
that time while /readyz answers 503: behind a load balancer, use two intervals of its probe.`,
		Example: `  export DATABASE_URL=postgres://carillon:secret@db:5432/carillon
  export CARILLON_ISSUER_KEY=$(openssl rand -base64 32)   # keep it: all processes need the same one
  export CARILLON_KEYSET=$(carillon keyset)               # this too
  carillon migrate
  carillon serve
  carillon serve --role api --listen :8080`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := read[serveSettings](p, cmd)
			if err != nil {
				return err
			}
			return serve(cmd.Context(), s, p.log(s.Log.LogFormat, s.Log.LogLevel))
		},
	}
	flags[serveSettings](cmd)
	return cmd
}

func serve(ctx context.Context, s serveSettings, log *slog.Logger) error {
	listener, err := s.listenForAPI(log)
	if err != nil {
		return err
	}
	metrics, err := listen(s.MetricsListen)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	h, err := wire(ctx, options{
		databaseURL: string(s.DatabaseURL),
		apiURL:      string(s.APIURL),
		connections: int(s.Connections),
		role:        s.Role,
		issuer:      string(s.Platform.Issuer),
		audience:    string(s.Platform.Audience),
		keys:        s.Platform.verifying(),
		minter:      s.Platform.minting(),
		proxies:     s.Proxies.prefixes,
		outbound:    s.Outbound.outbound(),
		tzdata:      s.TZData,
		keyset:      s.Keyset.keyset,
		traces:      s.Traces,
		log:         log,
		memory:      limitMemory(memlimit.FromCgroup, log),
		shed:        shedByPool,
		noDocs:      s.NoDocs,
		noConsole:   s.NoConsole,
	})
	if err != nil {
		return interrupted(ctx, errors.Join(err, listener.Close(), metrics.Close()))
	}
	defer h.close()
	if err := h.dispatch.Start(ctx); err != nil {
		return interrupted(ctx, errors.Join(err, listener.Close(), metrics.Close()))
	}
	if s.Role != "sweep" {
		h.warnOfSecrets(ctx, s.Keyset.keyset, log)
	}
	s.Outbound.warn(log)
	s.warnOfPlaintext(log)
	log.Info("serving", "role", s.Role, "listen", listener.Addr().String(), "metrics", metrics.Addr().String(), "version", thisEdition().Version)
	defer log.Info("stopped")
	return h.run(ctx, log, time.Duration(s.Drain),
		server{listener, h.router},
		server{metrics, onlyMetrics(web.MetricsHandler(h.registry))})
}

// interrupted returns nil if the start failed because ctx ended, and else err.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func listen(a address) (net.Listener, error) {
	l, err := net.Listen("tcp", string(a))
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", a, err)
	}
	return l, nil
}

// listenForAPI listens on the address of the API, with TLS if the settings name a certificate.
func (s serveSettings) listenForAPI(log *slog.Logger) (net.Listener, error) {
	if s.TLSCert == "" {
		return listen(s.Listen)
	}
	certificate, err := web.LoadCertificate(s.TLSCert, s.TLSKey, log)
	if err != nil {
		return nil, err
	}
	l, err := listen(s.Listen)
	if err != nil {
		return nil, err
	}
	return tls.NewListener(l, certificate.TLS()), nil
}

// warnOfPlaintext logs a warning if others can read tokens on the network: the API has no TLS, other machines can reach it, and no
// trusted proxy is named.
func (s serveSettings) warnOfPlaintext(log *slog.Logger) {
	if s.TLSCert == "" && s.Role.does("api") && !s.Listen.loopback() && len(s.Proxies.prefixes) == 0 {
		log.Warn("others can read tokens and payloads on the network: the API has no TLS. Set --tls-cert and --tls-key, or put a TLS proxy in front of it and name its networks in --trusted-proxies", "listen", string(s.Listen))
	}
}

func onlyMetrics(h http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", h)
	return mux
}

// server is a handler with its listener.
type server struct {
	listener net.Listener
	handler  http.Handler
}

// stopWithin bounds the stop of dispatch. It runs at the same time as the stop of web.Serve (web.Grace), so the whole takes under 10 s.
const stopWithin = 7 * time.Second

// run serves until ctx ends or a part fails. After ctx ends it goes on for drain, while /readyz answers 503. It returns when all parts
// have ended and the listeners are closed. The dispatch must have been started.
func (a *app) run(ctx context.Context, log *slog.Logger, drain time.Duration, servers ...server) error {
	draining := ctx
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(draining, func() {
		a.draining.Store(true)
		log.Info("draining", "for", drain)
		time.AfterFunc(drain, stop)
	})()
	parts, ctx := errgroup.WithContext(ctx)
	for _, s := range servers {
		parts.Go(func() error { return web.Serve(ctx, s.listener, s.handler, log) })
	}
	parts.Go(func() error { a.forecasts.LookAhead(ctx); return nil })
	parts.Go(func() error { a.directory.StoreUses(ctx, log); return nil })
	parts.Go(func() error {
		<-ctx.Done()
		log.Info("stopping")
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
		defer cancel()
		return a.dispatch.Stop(late)
	})
	return parts.Wait()
}
