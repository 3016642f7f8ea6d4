package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillonhq/carillon/tenants"
)

type tokenSettings struct {
	Tenant   string `env:"CARILLON_TENANT" envDefault:"demo" flag:"tenant" value:"NAME" help:"the tenant of the token"`
	Scope    string `env:"CARILLON_SCOPE" flag:"scope" value:"SCOPES" help:"its scopes, separated by spaces; without it all scopes of a tenant"`
	TTL      span   `env:"CARILLON_TTL" envDefault:"1h" flag:"ttl" value:"DURATION" help:"its lifetime: 1s to 1h"`
	URL      string `env:"CARILLON_URL" flag:"url" value:"URL" help:"the carillon dev that mints it; without it http://127.0.0.1:8080, or none if CARILLON_ISSUER_KEY is set"`
	Platform issuerSettings
}

func (p program) token() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Mint a token, and print nothing else",
		Long: `Mints a token. If CARILLON_ISSUER_KEY is set and --url is not, the command signs it with
that key. Otherwise it asks a carillon dev on this machine, which creates the tenant with
the default quotas if it does not exist. Scope platform:admin is for the operator of the
service: its token has no tenant.

Scopes: schedules:read schedules:write ticks:work endpoints:write subjects:erase tenant:read tenant:admin platform:admin`,
		Example: `  carillon token
  carillon token --tenant acme --scope "schedules:read schedules:write" --ttl 5m
  carillon token --url http://127.0.0.1:40123
  curl -H "Authorization: Bearer $(carillon token)" http://127.0.0.1:8080/v1/schedules`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := read[tokenSettings](p, cmd)
			if err != nil {
				return err
			}
			token, err := s.mint(cmd.Context(), cmd.Flags().Changed("tenant"), cmd.Flags().Changed("scope"))
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(p.stdout, map[string]string{"token": token})
			}
			_, err = fmt.Fprintln(p.stdout, token)
			return err
		},
	}
	flags[tokenSettings](cmd)
	jsonFlags(cmd, &asJSON)
	return cmd
}

func (s tokenSettings) mint(ctx context.Context, tenantGiven, scopeGiven bool) (string, error) {
	ask := tokenRequest{Tenant: s.Tenant, Scope: s.Scope, TTL: time.Duration(s.TTL).String()}
	if s.Scope == "" && !scopeGiven {
		ask.Scope = strings.Join(tenants.TenantScopes(), " ")
	}
	if ask.Scope == tenants.PlatformAdmin && !tenantGiven {
		ask.Tenant = ""
	}
	claims, err := ask.claims()
	if err != nil {
		return "", misuse{err}
	}
	if s.URL == "" && s.Platform.IssuerKey.key != nil {
		claims.Subject = "carillon token"
		return s.Platform.minter().Mint(claims, time.Now())
	}
	url := s.URL
	if url == "" {
		url = "http://127.0.0.1:8080"
	}
	return askDev(ctx, strings.TrimRight(url, "/"), ask)
}

func askDev(ctx context.Context, url string, ask tokenRequest) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	body, err := json.Marshal(ask)
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+tokenPath, bytes.NewReader(body))
	if err != nil {
		return "", misuse{fmt.Errorf("--url: %w", err)}
	}
	request.Header.Set("Content-Type", "application/json")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // without a proxy: carillon dev is on this machine
	answer, err := client.Do(request)
	if err != nil {
		return "", fmt.Errorf("no carillon dev answers at %s (%w): start one, or name it with --url", url, errors.Unwrap(err))
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	switch answer.StatusCode {
	case http.StatusOK:
		return token, nil
	case http.StatusNotFound:
		return "", fmt.Errorf("the server at %s is not carillon dev, and mints no tokens", url)
	}
	return "", fmt.Errorf("%s refuses the request: %s", url, token)
}
