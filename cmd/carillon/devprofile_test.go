package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// carillon dev writes a profile that other terminals use. An ephemeral run, or one with a ready file, writes only a profile that a
// setting names.
func TestDevWritesAProfileOnlyWhenAsked(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	getenv := func(name string) string {
		return map[string]string{"XDG_CONFIG_HOME": home, "CARILLON_NO_KEYCHAIN": "1"}[name]
	}
	d := dev{program: program{getenv, new(bytes.Buffer), new(bytes.Buffer)}, url: "http://127.0.0.1:1"}
	d.settings.Ephemeral = true
	if client := d.writeProfile(); client != "" {
		t.Errorf("an ephemeral run wrote a profile: %s", client)
	}
	d.settings = devSettings{ReadyFile: "ready.json"}
	if client := d.writeProfile(); client != "" {
		t.Errorf("a run with a ready file wrote a profile: %s", client)
	}
	if _, err := os.Stat(filepath.Join(home, "carillon")); !os.IsNotExist(err) {
		t.Errorf("there are profiles: %v", err)
	}
	d.settings = devSettings{}
	if client := d.writeProfile(); client != "carillon schedule list" {
		t.Errorf("got %q", client)
	}
	d.settings = devSettings{Ephemeral: true, Profile: "second"}
	if client := d.writeProfile(); client != "carillon schedule list --profile second" {
		t.Errorf("got %q", client)
	}
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"profile", "list"}, getenv, &out, &errs); code != exitDone {
		t.Fatal(errs.String())
	}
	if want := "dev\ttrue\thttp://127.0.0.1:1\tdemo\tdev\t\nsecond\tfalse\t"; !strings.HasPrefix(out.String(), want) {
		t.Errorf("got %q", out.String())
	}
}

// A profile that leads to another server with an API key is never replaced.
func TestDevKeepsAProfileOfTheUser(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	getenv := func(name string) string { return map[string]string{"XDG_CONFIG_HOME": home}[name] }
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"profile", "set", "dev", "--url", "https://carillon.example.com"}, getenv, &out, &errs); code != exitDone {
		t.Fatal(errs.String())
	}
	var said bytes.Buffer
	d := dev{program: program{getenv, &out, &said}, url: "http://127.0.0.1:1"}
	if client := d.writeProfile(); client != "" || !strings.Contains(said.String(), "belongs to https://carillon.example.com") {
		t.Errorf("got %q, %q", client, said.String())
	}
}
