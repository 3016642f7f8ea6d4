package main

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
)

// TestMain lets scripts run the program itself as a command, and is the program that signals are tried on.
func TestMain(m *testing.M) {
	if os.Getenv("CARILLON_TEST_STUCK") != "" {
		stuck()
	}
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

// stuck does as main does, and never ends.
func stuck() {
	ctx := interruptible()
	fmt.Println("running")
	<-ctx.Done()
	fmt.Println("stopping")
	select {}
}
