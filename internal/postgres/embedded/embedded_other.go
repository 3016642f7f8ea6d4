//go:build !unix

package embedded

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
)

// errNoServer is the answer to every start: locks, signals and process groups of this package are those of Unix.
var errNoServer = errors.New("on " + runtime.GOOS + " this program cannot start a PostgreSQL: install one, and name it with --database-url")

// Server does not exist here: Start returns none.
type Server struct{}

// Start returns an error that says what the user can do.
func Start(context.Context, Config) (*Server, error) { return nil, errNoServer }

// Find finds no programs.
func Find(context.Context) (dir, version string, err error) { return "", "", errNoServer }

// DefaultDir returns the default data folder, which then holds only the keys.
func DefaultDir() (string, error) {
	data, err := os.UserCacheDir()
	return filepath.Join(data, "carillon", "dev"), err
}

// URL returns no address.
func (s *Server) URL(string) string { return "" }

// Create creates no database.
func (s *Server) Create(context.Context, string) (string, error) { return "", errNoServer }

// Done never closes.
func (s *Server) Done() <-chan struct{} { return nil }

// Err returns why there is no server.
func (s *Server) Err() error { return errNoServer }

// Restart starts nothing.
func (s *Server) Restart(context.Context) error { return errNoServer }

// Stop has nothing to stop.
func (s *Server) Stop(context.Context) error { return nil }

// Port returns no port.
func (s *Server) Port() int { return 0 }
