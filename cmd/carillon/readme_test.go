package main

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

func TestSettingsAreDocumented(t *testing.T) {
	t.Parallel()
	for file, settings := range map[string]reflect.Type{
		"../../README.md":          reflect.TypeFor[serveSettings](),
		"../../docs/operations.md": reflect.TypeFor[devSettings](),
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if want := settingsTable(settings); !strings.Contains(string(text), want) {
			t.Errorf("%s lacks this table of %s:\n%s", file, settings, want)
		}
		for _, s := range settingsOf(settings) {
			if name := s.env + fileSuffix; s.secret && s.env != "CARILLON_DEV_DATABASE_URL" && !strings.Contains(string(text), name) {
				t.Errorf("%s lacks %s", file, name)
			}
		}
	}
}

// settingsTable returns the table of a command's settings, as the documents have it.
func settingsTable(settings reflect.Type) string {
	var b strings.Builder
	b.WriteString("| name | flag | default | meaning |\n| --- | --- | --- | --- |\n")
	for _, s := range settingsOf(settings) {
		flag, fallback := "", s.fallback
		if s.flag != "" {
			flag = "`--" + s.flag + "`"
		}
		if fallback != "" {
			fallback = "`" + fallback + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", s.env, flag, fallback, strings.ReplaceAll(s.help, "`", ""))
	}
	return b.String()
}
