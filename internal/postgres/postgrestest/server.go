package postgrestest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/postgres/embedded"
	"github.com/carillonhq/carillon/migrations"
)

// shared is the server of this process. go test runs each package in its own process.
var shared lazy

type lazy struct {
	once   sync.Once
	server *server
	err    error
}

func (l *lazy) start() (*server, error) {
	l.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		l.server, l.err = startServer(ctx, os.Getenv("CARILLON_TEST_DATABASE_URL"))
	})
	return l.server, l.err
}

// stop stops the server, if a test has started it.
func (l *lazy) stop() error {
	if l.server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return l.server.stop(ctx)
}

// server creates databases named after prefix, as copies of one template.
type server struct {
	own    *embedded.Server // nil: the server of CARILLON_TEST_DATABASE_URL
	url    func(database string) string
	admin  *pgxpool.Pool
	prefix string
	copied atomic.Int64

	migrated    sync.Once
	migratedErr error
}

// outdated is the age from which sweep drops the databases of killed test processes.
const outdated = 6 * time.Hour

func startServer(ctx context.Context, given string) (_ *server, err error) {
	s := &server{prefix: fmt.Sprintf("carillon_test_%d_%s_", time.Now().Unix(), strings.ToLower(rand.Text()[:8]))}
	if s.url, err = s.locate(ctx, given); err != nil {
		return nil, err
	}
	admin := cmp.Or(given, s.url("postgres"))
	if s.admin, err = postgres.Open(ctx, admin, postgres.Options{Name: "postgrestest", MaxConns: 4, StatementTimeout: 2 * time.Minute}); err != nil {
		return nil, errors.Join(err, s.stop(ctx))
	}
	if given != "" {
		if err := s.sweep(ctx); err != nil {
			return nil, errors.Join(err, s.stop(ctx))
		}
	}
	return s, nil
}

func (s *server) locate(ctx context.Context, given string) (func(string) string, error) {
	if given != "" {
		u, err := url.Parse(given)
		if err != nil || u.Host == "" {
			return nil, errors.New("CARILLON_TEST_DATABASE_URL is not a URL such as postgres://user:password@host:5432/postgres")
		}
		return func(database string) string {
			other := *u
			other.Path = "/" + database
			return other.String()
		}, nil
	}
	own, err := embedded.Start(ctx, embedded.Config{Ephemeral: true, Args: []string{"max_connections=300", "autovacuum_naptime=10s"}})
	if err != nil {
		return nil, err
	}
	s.own = own
	return func(database string) string { return own.URL(database) + "&connect_timeout=10" }, nil // connecting may take long while other tests run
}

func (s *server) template() string { return s.prefix + "template" }

// migrate creates the template once.
func (s *server) migrate(ctx context.Context) error {
	s.migrated.Do(func() {
		if s.migratedErr = s.exec(ctx, `CREATE DATABASE `+identifier(s.template())); s.migratedErr == nil {
			_, s.migratedErr = migrations.Up(ctx, s.url(s.template()), migrations.Options{})
		}
	})
	return s.migratedErr
}

// clone creates a database as a copy of the template. From PostgreSQL 15 on it asks for a copy of files, which is faster here than the
// default copy through the write-ahead log.
func (s *server) clone(ctx context.Context, migrated bool) (string, error) {
	from := "template0"
	if migrated {
		if err := s.migrate(context.WithoutCancel(ctx)); err != nil {
			return "", err
		}
		from = s.template()
	}
	name := s.prefix + strconv.FormatInt(s.copied.Add(1), 10)
	strategy := ""
	var version int
	if err := s.admin.QueryRow(ctx, `SELECT current_setting('server_version_num')::int`).Scan(&version); err != nil {
		return "", err
	}
	if version >= 150000 {
		strategy = ` STRATEGY FILE_COPY`
	}
	return name, s.exec(ctx, `CREATE DATABASE `+identifier(name)+` TEMPLATE `+identifier(from)+strategy)
}

func (s *server) drop(ctx context.Context, name string) error {
	return s.exec(ctx, `DROP DATABASE IF EXISTS `+identifier(name)+` WITH (FORCE)`)
}

// sweep drops the databases of killed test processes.
func (s *server) sweep(ctx context.Context) error {
	rows, _ := s.admin.Query(ctx, `
		SELECT datname
		FROM pg_database
		WHERE datname ~ '^carillon_test_[0-9]+_'
			AND to_timestamp(split_part(datname, '_', 3)::bigint) < now() - $1::interval`, outdated)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, name := range names {
		err = errors.Join(err, s.drop(ctx, name))
	}
	return err
}

func (s *server) stop(ctx context.Context) error {
	var err error
	if s.admin != nil {
		if s.own == nil {
			err = s.drop(ctx, s.template())
		}
		s.admin.Close()
	}
	if s.own != nil {
		err = errors.Join(err, s.own.Stop(ctx))
	}
	return err
}

func (s *server) exec(ctx context.Context, sql string) error {
	_, err := s.admin.Exec(ctx, sql)
	return err
}

func identifier(name string) string { return pgx.Identifier{name}.Sanitize() }
