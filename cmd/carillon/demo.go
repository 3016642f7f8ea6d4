package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"time"
)

// demo gives `carillon dev` ticks from the start: it stores schedules of six people, and runs a worker that finishes their ticks. It
// uses the public API.
type demo struct {
	url  string
	keys *devKeys
	log  *slog.Logger
}

// people each have a pulse every 12 seconds, 2 s after the previous person's, and a digest at eight in the morning on weekdays.
var people = []struct{ key, zone string }{
	{"ana@lisbon", "Europe/Lisbon"},
	{"bikash@kathmandu", "Asia/Kathmandu"},
	{"carla@new-york", "America/New_York"},
	{"dev@kolkata", "Asia/Kolkata"},
	{"eliza@lord-howe", "Australia/Lord_Howe"},
	{"farid@casablanca", "Africa/Casablanca"},
}

const (
	pulse  = "pulse"
	digest = "morning-digest"
)

func (d demo) run(ctx context.Context) error {
	for i, who := range people {
		err := d.put(ctx, pulse, who.key, map[string]any{
			"timezone":  who.zone,
			"intervals": []map[string]any{{"every": "12s", "offset": fmt.Sprintf("%ds", 2*i)}},
		})
		if err == nil {
			err = d.put(ctx, digest, who.key, map[string]any{"timezone": who.zone, "cron": "0 8 * * 1-5"})
		}
		if err != nil {
			return interrupted(ctx, fmt.Errorf("seed the demo: %w", err))
		}
	}
	for ctx.Err() == nil {
		if err := d.work(ctx); err != nil && ctx.Err() == nil {
			d.log.Warn("the demo's worker failed; it tries again", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
	return nil
}

func (d demo) put(ctx context.Context, workflow, key string, spec map[string]any) error {
	path := "/v1/workflows/" + workflow + "/schedules/" + url.PathEscape(key)
	for try := 1; ; try++ {
		err := d.call(ctx, http.MethodPut, path, map[string]any{"spec": spec, "labels": map[string]string{"demo": "yes"}}, nil)
		if !errors.Is(err, errUnavailable) || try == seedTries {
			return err
		}
		select { // the database may be restarting
		case <-ctx.Done():
			return err
		case <-time.After(time.Second):
		}
	}
}

const seedTries = 60

// errUnavailable is the error of an answer 503, after which the caller tries again.
var errUnavailable = errors.New("unavailable")

// finished is a tick that the worker ends.
type finished struct {
	TickID     string `json:"tick_id"`
	LeaseToken string `json:"lease_token"`
	Outcome    string `json:"outcome"`
}

// work waits for ticks, leases them and finishes them.
func (d demo) work(ctx context.Context) error {
	var leased struct {
		Ticks []finished `json:"ticks"`
	}
	ask := map[string]any{"workflows": []string{pulse, digest}, "max": 100, "wait": "20s", "lease": "1m", "worker": "carillon dev"}
	if err := d.call(ctx, http.MethodPost, "/v1/ticks/lease", ask, &leased); err != nil || len(leased.Ticks) == 0 {
		return err
	}
	for i := range leased.Ticks {
		leased.Ticks[i].Outcome = "complete"
	}
	return d.call(ctx, http.MethodPost, "/v1/ticks/finish", map[string]any{"ticks": leased.Ticks}, nil)
}

// client opens a connection for each call, so that none is left when the program ends.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 40 * time.Second}

func (d demo) call(ctx context.Context, method, path string, body, answer any) error {
	tokens, err := d.keys.tokens(time.Now())
	if err != nil {
		return err
	}
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, d.url+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+tokens.Token)
	request.Header.Set("Content-Type", "application/json")
	got, err := client.Do(request)
	if err != nil {
		return err
	}
	defer got.Body.Close()
	content, err := io.ReadAll(io.LimitReader(got.Body, 4<<20))
	if err != nil {
		return err
	}
	if got.StatusCode == http.StatusServiceUnavailable {
		return fmt.Errorf("%w: %s %s: %.300s", errUnavailable, method, path, content)
	}
	if got.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %.300s", method, path, got.Status, content)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(content, answer)
}
