package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// announcement is the content of the ready file.
type announcement struct {
	URL string `json:"url"`
	devTokens
	DatabaseURL string `json:"database_url"`
}

// announce prints that everything is ready, and renews the tokens of the ready file until ctx ends.
func (d dev) announce(ctx context.Context) error {
	tokens, err := d.keys.tokens(time.Now())
	if err != nil {
		return err
	}
	d.greet(tokens)
	renew := time.NewTicker(renewBefore / 2)
	defer renew.Stop()
	for {
		if err := d.writeReadyFile(tokens); err != nil {
			return fmt.Errorf("write the ready file: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case now := <-renew.C:
			if tokens, err = d.keys.tokens(now); err != nil {
				return err
			}
		}
	}
}

func (d dev) writeReadyFile(tokens devTokens) error {
	if d.settings.ReadyFile == "" {
		return nil
	}
	text, err := json.MarshalIndent(announcement{d.url, tokens, d.databaseURL}, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(d.settings.ReadyFile, append(text, '\n'))
}

func (d dev) greet(tokens devTokens) {
	if d.settings.LogFormat == "json" {
		line, _ := json.Marshal(map[string]any{"time": time.Now().UTC(), "msg": "ready", "url": d.url}) // it is plain text
		fmt.Fprintf(d.stdout, "%s\n", line)
		return
	}
	fmt.Fprintf(d.stdout, `Carillon is ready.

  API      %[1]s
  docs     %[1]s/docs
  console  %[1]s/console
  metrics  %[1]s/metrics
  token    of tenant %[3]s, valid for an hour; for another: carillon token --url %[1]s

  export CARILLON_TOKEN=%[2]s

  curl -X PUT %[1]s/v1/workflows/hello/schedules/me \
    -H "Authorization: Bearer $CARILLON_TOKEN" -H "Content-Type: application/json" \
    -d '{"spec": {"intervals": [{"every": "5s"}]}, "payload": {"say": "hello"}}'

Ticks when they fire (UTC):
`, d.url, tokens.Token, demoTenant)
}
