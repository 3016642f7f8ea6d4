package main

import (
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/carillonhq/carillon/internal/postgres"
)

// address is host:port to listen on. An empty host means all addresses of the machine.
type address string

func (a *address) UnmarshalText(text []byte) error {
	host, port, err := net.SplitHostPort(string(text))
	if err != nil {
		return fmt.Errorf("%q is not an address such as 127.0.0.1:8080 or :8080", text)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q is not a port from 0 to 65535", port)
	} else if strings.ContainsAny(host, " /") {
		return fmt.Errorf("%q is not a host", host)
	} else {
		*a = address(net.JoinHostPort(host, strconv.FormatUint(n, 10)))
	}
	return nil
}

// loopback reports whether only this machine can reach the address.
func (a address) loopback() bool {
	host, _, _ := net.SplitHostPort(string(a))
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// databaseURL is a URL that postgres.Open accepts.
type databaseURL string

func (u *databaseURL) UnmarshalText(text []byte) error {
	*u = databaseURL(text)
	return postgres.Check(string(text))
}

// role is the part of the work that a process of `carillon serve` does.
type role string

var roles = []role{"all", "api", "sweep", "dispatch"}

func (r *role) UnmarshalText(text []byte) error {
	for _, known := range roles {
		if string(text) == string(known) {
			*r = known
			return nil
		}
	}
	return fmt.Errorf("%q is not one of all, api, sweep and dispatch", text)
}

func (r role) does(part role) bool { return r == "all" || r == part }

// format is the format of lines: text or json.
type format string

func (f *format) UnmarshalText(text []byte) error {
	if s := string(text); s != "text" && s != "json" {
		return fmt.Errorf("%q is neither text nor json", text)
	}
	*f = format(text)
	return nil
}

// level is the least important level that is logged.
type level slog.Level

func (l *level) UnmarshalText(text []byte) error {
	var parsed slog.Level
	if err := parsed.UnmarshalText(text); err != nil {
		return fmt.Errorf("%q is not one of debug, info, warn and error", text)
	}
	*l = level(parsed)
	return nil
}

// span is a duration of 0 or more.
type span time.Duration

func (s *span) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil || d < 0 {
		return fmt.Errorf("%q is not a duration such as 90s, 5m or 1h30m", text)
	}
	*s = span(d)
	return nil
}
