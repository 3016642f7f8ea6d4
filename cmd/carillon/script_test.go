package main

import (
	"context"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
)

// TestMain lets scripts run the program itself as a command.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"carillon": func() { os.Exit(run(context.Background(), os.Args[1:], os.Getenv, os.Stdout, os.Stderr)) },
	})
}

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("NO_COLOR", "1")
			env.Setenv("EMPTY_DATABASE", postgrestest.EmptyURL(t))
			return nil
		},
	})
}
