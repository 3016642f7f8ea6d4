package postgres

import (
	"bytes"
	"net"
	"strings"
	"testing"
	"time"
)

func TestABadURLIsNamedWithoutItsPassword(t *testing.T) {
	t.Parallel()
	for _, u := range []string{
		"postgres://u:s3cr3t@h:port/db",
		"postgres://u:s3cr3t@h:5432/db?sslmode=never",
		"postgres://u:x/s3cr3t@h:5432/db",
		"postgres://u:x@s3cr3t@h:5432/db",
		"postgres://u:s3cr3t%zz@h:5432/db",
		"postgres://u:s3cr3t@h:5432/db?pool_max_conns=many",
		"host=h password=s3cr3t port=x",
		"mysql://u:s3cr3t@h/db",
		"s3cr3t",
	} {
		_, err := Open(t.Context(), u, Options{})
		if err == nil {
			t.Errorf("%s was accepted", u)
			continue
		}
		if text := err.Error(); strings.Contains(text, "s3cr3t@") || strings.Contains(text, "u:") || strings.Contains(text, "\n") {
			t.Errorf("%s: %s", u, text)
		}
	}
}

func TestOptionsOfTheURLWin(t *testing.T) {
	t.Parallel()
	c, err := parse("postgres://u:p@h/db?statement_timeout=5000&TimeZone=Asia/Tokyo&connect_timeout=2", Options{Name: "sweep", MaxConns: 3, Cluster: NewCluster()})
	if err != nil {
		t.Fatal(err)
	}
	p := c.ConnConfig.RuntimeParams
	if p["statement_timeout"] != "5000" || p["TimeZone"] != "Asia/Tokyo" || p["timezone"] != "" || p["application_name"] != "sweep" {
		t.Errorf("got %v", p)
	}
	if p["idle_in_transaction_session_timeout"] != "60000" || p["lock_timeout"] != "15000" {
		t.Errorf("got %v", p)
	}
	if c.MaxConns != 3 || c.ConnConfig.ConnectTimeout != 2*time.Second {
		t.Errorf("got %d connections, connect in %s", c.MaxConns, c.ConnConfig.ConnectTimeout)
	}
}

func TestAnAbsentServerIsOneSentence(t *testing.T) {
	t.Parallel()
	_, err := Open(t.Context(), "postgres://u:s3cr3t@127.0.0.1:1/db", Options{})
	if err == nil || strings.ContainsAny(err.Error(), "\n\t") || strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("got %v", err)
	}
	if !strings.HasPrefix(err.Error(), "no PostgreSQL answers at 127.0.0.1:1") {
		t.Errorf("got %v", err)
	}
}

// A first connection that gets no answer in time is tried again. One that is refused is not.
func TestOpenTriesAgainWhenTheTimeRanOut(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan int)
	go func() {
		n := 0
		defer func() { accepted <- n }()
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer func() { _ = c.Close() }() // the first is silent until the end
			if !startsSession(c, "open_tries_again") {
				continue
			}
			if n++; n > 1 {
				_ = c.Close()
			}
		}
	}()
	if _, err := Open(t.Context(), "postgres://u:p@"+l.Addr().String()+"/open_tries_again?sslmode=disable&connect_timeout=3", Options{}); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("got %v", err)
	}
	_ = l.Close()
	if n := <-accepted; n != 2 {
		t.Errorf("%d connections were made, want 2", n)
	}
}

// startsSession reports whether a client asks for a database. Clients of other tests may still look for a server that had the same port.
func startsSession(c net.Conn, database string) bool {
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	startup := make([]byte, 1000)
	n, err := c.Read(startup)
	return err == nil && bytes.Contains(startup[:n], []byte("\x00"+database+"\x00"))
}
