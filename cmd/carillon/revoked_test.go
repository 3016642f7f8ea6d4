package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/carillonhq/carillon/internal/web/webtest"
	"github.com/carillonhq/carillon/tenants"
)

// inForce is the time after which each process refuses a deleted API key.
const inForce = 5 * time.Second

// A deleted API key is refused within 5 s in every process: in new requests, in a long poll that waits, in a bulk upsert that sends lines,
// and in one whose client sends nothing.
func TestADeletedAPIKeyIsRefusedEverywhere(t *testing.T) {
	t.Parallel()
	var o options
	first := serveAs(t, func(p *options) { o = *p })
	o.keys, o.minter, o.databaseURL = []tenants.Key{first.minter.Key()}, &first.minter, first.pool.Config().ConnString()
	other, err := wire(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.close)
	second := first
	first.url, second.url = "http://"+webtest.Serve(t, first.router), "http://"+webtest.Serve(t, other.router)

	client, admin := checked(t), first.mint(t, "acme", tenants.TenantAdmin)
	made := first.expect(t, client, admin, "POST", "/v1/admin/api-keys", `{"name": "a", "scopes": ["schedules:read", "schedules:write", "ticks:work"]}`, 201, "")
	key := fmt.Sprint(made["key"])
	for _, s := range []whole{first, second} {
		s.expect(t, client, key, "GET", "/v1/workflows", "", 200, "")
	}
	type ending struct {
		what, answer string
		status       int
		torn         bool // the server closed the connection before the client had read the end of the answer
	}
	endings, running := make(chan ending), 0
	run := func(what string, s whole, path, media string, body io.Reader) {
		running++
		go func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, "POST", s.url+path, body)
			if err != nil {
				endings <- ending{what, err.Error(), 0, false}
				return
			}
			req.Header.Set("Authorization", "Bearer "+key)
			req.Header.Set("Content-Type", media)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				endings <- ending{what, err.Error(), 0, false}
				return
			}
			defer resp.Body.Close()
			answer, err := io.ReadAll(resp.Body)
			endings <- ending{what, string(answer), resp.StatusCode, err != nil}
		}()
	}
	const line = `{"workflow": "w", "key": "k%d", "spec": {"cron": "0 8 1 1 *"}}` + "\n"
	for n, s := range []whole{first, second} {
		run(fmt.Sprintf("poll %d", n), s, "/v1/ticks/lease", "application/json", strings.NewReader(`{"workflows": ["none"], "wait": "30s", "worker": "a"}`))
		silent, sender := io.Pipe()
		t.Cleanup(func() { _ = sender.Close() })
		run(fmt.Sprintf("silent bulk %d", n), s, "/v1/schedules/bulk", "application/x-ndjson", silent)
		busy, lines := io.Pipe()
		run(fmt.Sprintf("busy bulk %d", n), s, "/v1/schedules/bulk", "application/x-ndjson", busy)
		go func() {
			w := bufio.NewWriterSize(lines, 1<<10)
			for i := range 1_000_000 {
				if _, err := fmt.Fprintf(w, line, i%1000); err != nil {
					return // the request has ended
				}
			}
			_ = lines.Close()
		}()
		if _, err := fmt.Fprintf(sender, line, 0); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case e := <-endings:
		t.Fatalf("%s ended before the key was deleted: %d %s", e.what, e.status, e.answer)
	case <-time.After(time.Second):
	}
	first.expect(t, client, admin, "DELETE", "/v1/admin/api-keys/"+fmt.Sprint(made["id"]), "", 204, "")
	deadline := time.After(inForce)
	for range running {
		select {
		case e := <-endings:
			if cut := e.status == 200 && strings.HasSuffix(e.what[:len(e.what)-2], "bulk") && (e.torn || strings.Contains(e.answer, `"invalid_token"`)) && !strings.Contains(e.answer, `"summary"`); e.status != 401 && !cut {
				t.Errorf("%s: got %d %.300s", e.what, e.status, e.answer)
			}
		case <-deadline:
			t.Fatal("a request outlives its key")
		}
	}
	for _, s := range []whole{first, second} {
		s.expect(t, client, key, "GET", "/v1/workflows", "", 401, "invalid_token")
	}
}

// The answer to a bulk request ends when its key is deleted. What the client goes on to send is the rest of the body, and no other request.
func TestTheBodyOfACutBulkRequestIsNoRequest(t *testing.T) {
	t.Parallel()
	s := serveHouse(t)
	address := webtest.Serve(t, s.router)
	client, admin := checked(t), s.mint(t, "acme", tenants.TenantAdmin)
	made := s.expect(t, client, admin, "POST", "/v1/admin/api-keys", `{"name": "a", "scopes": ["schedules:write"]}`, 201, "")
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(inTime))
	head := "POST /v1/schedules/bulk HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\nAuthorization: Bearer " + fmt.Sprint(made["key"]) + "\r\n\r\n"
	lines := strings.Repeat(`{"workflow": "w", "key": "k", "spec": {"cron": "0 8 1 1 *"}}`+"\n", 5000) // more than one batch
	if _, err := io.WriteString(c, head+"1000000\r\n"+lines); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(c)
	answer, err := http.ReadResponse(answers, nil)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("got %v, %v", answer, err)
	}
	s.expect(t, client, admin, "DELETE", "/v1/admin/api-keys/"+fmt.Sprint(made["id"]), "", 204, "")
	if results, err := io.ReadAll(answer.Body); err != nil || !bytes.Contains(results, []byte(`"invalid_token"`)) {
		t.Errorf("got %s, %v", results, err)
	}
	_ = c.SetDeadline(time.Now().Add(25 * time.Second)) // the server would wait for the rest of a body for longer
	if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if more, err := io.ReadAll(answers); err != nil || len(more) > 0 {
		t.Errorf("after the answer came %q, %v", more, err)
	}
}
