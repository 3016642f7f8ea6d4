package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/carillonhq/carillon/cmd/carillon/cli/profile"
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
	d.greet(tokens, d.consoleLink(ctx, tokens.Token), d.writeProfile())
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

// devProfile is the name of the profile that carillon dev writes by default.
const devProfile = "dev"

// writeProfile writes a profile with which the client's commands use this server, and returns an example of such a command. It returns ""
// if it wrote no profile. An ephemeral run, or one with a ready file for another program, writes only the profile that a setting names.
func (d dev) writeProfile() string {
	name := d.settings.Profile
	if name == "" {
		if d.settings.Ephemeral || d.settings.ReadyFile != "" {
			return ""
		}
		name = devProfile
	}
	current := false
	path, err := profile.Path(d.getenv)
	if err == nil {
		err = profile.Change(path, func(c *profile.Config) error {
			if p, known := c.Profiles[name]; known && p.SignIn != profile.SignInDev {
				return fmt.Errorf("the profile %q belongs to %s: choose another one with --profile", name, p.URL)
			}
			c.Profiles[name] = profile.Profile{URL: d.url, Tenant: demoTenant, SignIn: profile.SignInDev}
			if c.Current == "" {
				c.Current = name
			}
			current = c.Current == name
			return nil
		})
	}
	if err != nil {
		fmt.Fprintf(d.stderr, "carillon dev writes no profile: %v\n", err)
		return ""
	}
	if current {
		return "carillon schedule list"
	}
	return "carillon schedule list --profile " + name
}

func (d dev) greet(tokens devTokens, console, list string) {
	if d.settings.LogFormat == "json" {
		line, _ := json.Marshal(map[string]any{"time": time.Now().UTC(), "msg": "ready", "url": d.url}) // it is plain text
		fmt.Fprintf(d.stdout, "%s\n", line)
		return
	}
	next := ""
	if list != "" {
		next = "\n  " + list + "   # in another terminal\n"
	}
	fmt.Fprintf(d.stdout, `Carillon is ready.

  API      %[1]s
  docs     %[1]s/docs
  console  %[4]s
           signs in once, within a minute; later: carillon open --url %[1]s
  metrics  %[1]s/metrics
  token    of tenant %[3]s, valid for an hour; for another: carillon token --url %[1]s
%[5]s
  export CARILLON_TOKEN=%[2]s

  curl -X PUT %[1]s/v1/workflows/hello/schedules/me \
    -H "Authorization: Bearer $CARILLON_TOKEN" -H "Content-Type: application/json" \
    -d '{"spec": {"intervals": [{"every": "5s"}]}, "payload": {"say": "hello"}}'

Ticks when they fire (UTC):
`, d.url, tokens.Token, demoTenant, console, next)
}

// consoleLink returns an address that opens the console, signed in. If the server does not answer, it is the address without the sign-in.
func (d dev) consoleLink(ctx context.Context, token string) string {
	var made struct{ Path string }
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url+"/console/code", nil)
	if err == nil {
		request.Header.Set("Authorization", "Bearer "+token)
		var answer *http.Response
		if answer, err = client.Do(request); err == nil {
			err = json.NewDecoder(io.LimitReader(answer.Body, 64<<10)).Decode(&made)
			err = errors.Join(err, answer.Body.Close())
		}
	}
	if err != nil || made.Path == "" {
		d.log.Debug("no link to the console", "error", err)
		return d.url + "/console"
	}
	return d.url + made.Path
}
