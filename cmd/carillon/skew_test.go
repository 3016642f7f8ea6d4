package main

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/carillonhq/carillon/cmd/carillon/cli"
	"github.com/carillonhq/carillon/tenants"
)

// Each answer to a request with a valid token names the version of the server, also if it is a refusal. An answer to a request without
// a token does not.
func TestAnswersNameTheVersion(t *testing.T) {
	t.Parallel()
	s := serveHouse(t)
	token := s.mint(t, "acme", "schedules:read")
	for _, ask := range []struct {
		method, path, token string
		status              int
		want                string
	}{
		{"GET", "/v1/schedules", token, http.StatusOK, thisEdition().Version},
		{"GET", "/v1/schedules?limit=x", token, http.StatusUnprocessableEntity, thisEdition().Version},
		{"DELETE", "/v1/workflows/a/schedules/b", token, http.StatusForbidden, thisEdition().Version},
		{"GET", "/v1/schedules", "", http.StatusUnauthorized, ""},
		{"GET", "/healthz", "", http.StatusOK, ""},
	} {
		got, _ := s.ask(t, checked(t), ask.token, ask.method, ask.path, nil, nil, patience)
		if got.status != ask.status || got.header.Get("Carillon-Version") != ask.want {
			t.Errorf("%s %s: got %d with version %q", ask.method, ask.path, got.status, got.header.Get("Carillon-Version"))
		}
	}
}

// The command line warns if its version and the server's differ by more than one minor version. The warning follows the data, on
// standard error.
func TestTheCommandLineWarnsOfADistantServer(t *testing.T) {
	t.Parallel()
	s := serveAs(t, func(o *options) { o.version = "v1.4.0" })
	env := newTerminal(t, s.url, s.mint(t, "acme", tenants.TenantScopes()...)).env
	for ours, warned := range map[string]bool{"v1.2.9": true, "v1.3.0": false, "v1.5.1": false, "v1.6.0": true, "v2.4.0": true, "development": false} {
		var out, errs bytes.Buffer
		e := program{func(name string) string { return env[name] }, &out, &errs}.client()
		e.Version = ours
		root := &cobra.Command{Use: "carillon", SilenceErrors: true, SilenceUsage: true}
		root.AddCommand(cli.Commands(e)...)
		root.SetArgs([]string{"schedule", "list", "-o", "json"})
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Fatalf("%v\n%s", err, &errs)
		}
		want := "warning: this program has version " + ours + " and the server has version v1.4.0; some commands may not work\n"
		if out.String() != "[]\n" || warned != strings.Contains(errs.String(), want) {
			t.Errorf("%s: got %q and %q", ours, &out, &errs)
		}
	}
}
