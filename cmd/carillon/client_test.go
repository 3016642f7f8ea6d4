package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/carillonhq/carillon/tenants"
)

// clientScripts are the scripts of the client's commands.
const clientScripts = "testdata/client"

// Each script runs the program against one server, as a tenant of its own.
func TestClientScripts(t *testing.T) {
	t.Parallel()
	server := serveHouse(t)
	testscript.Run(t, testscript.Params{
		Dir:  clientScripts,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"json": runJSON, "until": runUntil, "set": setFromOutput},
		Setup: func(env *testscript.Env) error {
			tenant := strings.TrimPrefix(filepath.Base(env.WorkDir), "script-")
			if _, err := tenants.Ensure(context.Background(), server.pool, tenant, tenants.Wide()); err != nil {
				return err
			}
			for name, value := range map[string]string{
				"NO_COLOR":             "1",
				"GORACE":               os.Getenv("GORACE"),
				"XDG_CONFIG_HOME":      filepath.Join(env.WorkDir, "config"),
				"CARILLON_NO_KEYCHAIN": "1",
				"CARILLON_URL":         server.url,
				"CARILLON_TOKEN":       server.mint(t, tenant, tenants.TenantScopes()...),
				"PLATFORM_TOKEN":       server.mint(t, "", tenants.PlatformAdmin),
				"READER_TOKEN":         server.mint(t, tenant, "schedules:read"),
				"TENANT":               tenant,
			} {
				env.Setenv(name, value)
			}
			return nil
		},
	})
}

// runJSON runs a command with -o json and fails unless standard output is JSON.
func runJSON(ts *testscript.TestScript, neg bool, args []string) {
	err := ts.Exec(args[0], append(args[1:], "-o", "json")...)
	if (err != nil) != neg {
		ts.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
	decoder := json.NewDecoder(strings.NewReader(ts.ReadFile("stdout")))
	for count := 0; ; count++ {
		var value any
		err := decoder.Decode(&value)
		if err == io.EOF && (count > 0 || neg) {
			return
		}
		if err != nil {
			ts.Fatalf("%s -o json prints no JSON: %v", strings.Join(args, " "), err)
		}
	}
}

// setFromOutput sets a variable to the last standard output: set NAME.
func setFromOutput(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

// runUntil repeats a command until standard output matches a pattern: until PATTERN COMMAND...
func runUntil(ts *testscript.TestScript, _ bool, args []string) {
	pattern := regexp.MustCompile(args[0])
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if err := ts.Exec(args[1], args[2:]...); err == nil && pattern.MatchString(ts.ReadFile("stdout")) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s never printed %s", strings.Join(args[1:], " "), args[0])
		}
	}
}

// clientCommands are the client's commands without those that only hold others.
func clientCommands() []*cobra.Command {
	root := program{os.Getenv, io.Discard, io.Discard}.root()
	var leaves []*cobra.Command
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		if !cmd.HasSubCommands() {
			leaves = append(leaves, cmd)
		}
		for _, child := range cmd.Commands() {
			visit(child)
		}
	}
	visit(root)
	return leaves
}

// streams are the commands that print lines while they run: ticks and log lines, in the format of --log-format.
var streams = []string{"carillon dev", "carillon serve"}

// scriptedElsewhere are the commands of the server, which the scripts of TestScripts run.
var scriptedElsewhere = []string{"carillon token", "carillon version", "carillon keyset", "carillon migrate", "carillon doctor"}

func TestEveryCommandExplainsItself(t *testing.T) {
	t.Parallel()
	for _, cmd := range clientCommands() {
		path := cmd.CommandPath()
		if cmd.Short == "" || cmd.Long == "" || !strings.Contains(cmd.Example, path) {
			t.Errorf("%s: its help lacks a summary, an explanation or an example of itself", path)
		}
		if strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: the summary %q is no sentence: it has no full stop", path, cmd.Short)
		}
		if !slices.Contains(streams, path) && cmd.Flags().Lookup("output") == nil {
			t.Errorf("%s has no -o", path)
		}
	}
}

// Every command is run by a script, with -o json, and the output is JSON.
func TestEveryCommandHasAScript(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(clientScripts, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var scripts strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		scripts.Write(text)
	}
	for _, cmd := range clientCommands() {
		path := cmd.CommandPath()
		if slices.Contains(streams, path) || slices.Contains(scriptedElsewhere, path) {
			continue
		}
		if run := regexp.MustCompile(`(?m)^json ` + path + `( |$)`); !run.MatchString(scripts.String()) {
			t.Errorf("no script in %s runs: json %s", clientScripts, path)
		}
	}
}
