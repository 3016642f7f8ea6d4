// Package embedded runs a PostgreSQL server as a child process: for `carillon dev`, for tests and for loadtest, on a machine without a
// server. The server listens on loopback only. It ends with this process, even after kill -9.
//
// A file lock keeps two processes from using one folder. The next start cleans up after a crash. The package never empties or converts
// an existing data folder.
package embedded

import "io"

// Config configures a server. Exactly one of Dir and Ephemeral is set.
type Config struct {
	Dir       string    // the server's folder, created if absent: data, password, log and lock
	Ephemeral bool      // use a temporary folder, which Stop removes; fsync is off
	Log       io.Writer // gets a line for each slow step, such as a download; may be nil
	Args      []string  // further settings, as name=value
	Standby   *Server   // the primary that a new server copies, and follows until Promote; nil: the server is a primary
}
