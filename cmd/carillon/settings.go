package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"

	"github.com/caarlos0/env/v11"
	"github.com/spf13/cobra"
)

// The settings of a command are a struct. The tags of a field say where its value comes from:
//
//	env         the environment variable
//	envDefault  the value if neither the variable nor the flag is given
//	flag        the flag, which wins over the variable; secrets have none, because other users can read command lines
//	value       the placeholder of the value in the help, such as ADDRESS
//	help        the meaning
//	secret      "true": the value can come from a file, whose path is in the variable with _FILE at its end
//
// UnmarshalText of the field's type checks a value. The method faults of the struct checks several values together.

// setting is one field of such a struct.
type setting struct {
	field, env, fallback, flag, value, help string
	boolean, secret                         bool
	failed                                  bool // its value could not be read
}

// fileSuffix ends the name of a variable that names the file of a secret.
const fileSuffix = "_FILE"

func (s setting) String() string {
	if s.flag == "" {
		return s.env
	}
	return s.env + " (--" + s.flag + ")"
}

func settingsOf(t reflect.Type) []setting {
	var list []setting
	for f := range t.Fields() {
		if f.Type.Kind() == reflect.Struct && f.Tag.Get("env") == "" {
			list = append(list, settingsOf(f.Type)...)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("env"), ",")
		list = append(list, setting{
			field:    f.Name,
			env:      name,
			fallback: f.Tag.Get("envDefault"),
			flag:     f.Tag.Get("flag"),
			value:    f.Tag.Get("value"),
			help:     f.Tag.Get("help"),
			boolean:  f.Type.Kind() == reflect.Bool,
			secret:   f.Tag.Get("secret") == "true",
		})
	}
	return list
}

// given is the text of a flag; read parses it.
type given struct{ text, value string }

func (g *given) String() string        { return g.text }
func (g *given) Type() string          { return g.value }
func (g *given) Set(text string) error { g.text = text; return nil }

// flags adds the flags of settings T to a command, and lists the variables in its help.
func flags[T any](cmd *cobra.Command) {
	var variables strings.Builder
	var files []string
	for _, s := range settingsOf(reflect.TypeFor[T]()) {
		if s.secret {
			files = append(files, s.env+fileSuffix)
		}
		switch {
		case s.flag == "":
			meaning := s.help
			if s.fallback != "" {
				meaning += " (default " + s.fallback + ")"
			}
			fmt.Fprintf(&variables, "  %-28s %s\n", s.env, meaning)
		case s.boolean:
			cmd.Flags().Bool(s.flag, false, s.help+" ["+s.env+"]")
		default:
			cmd.Flags().Var(&given{s.fallback, s.value}, s.flag, s.help+" ["+s.env+"]")
		}
	}
	if variables.Len() > 0 {
		cmd.Long += "\n\nSettings that come from the environment only:\n" + strings.TrimRight(variables.String(), "\n")
	}
	if len(files) > 0 {
		cmd.Long += "\n\nEach of these variables names a file that holds the value of the variable without " + fileSuffix + ":\n  " + strings.Join(files, "\n  ")
	}
}

// read returns the settings of a command. Its error lists all mistakes at once.
func read[T any](p program, cmd *cobra.Command) (T, error) {
	settings := settingsOf(reflect.TypeFor[T]())
	values := map[string]string{}
	var lines []string
	unread := false
	for i, s := range settings {
		value, err := p.environment(s)
		if f := cmd.Flags().Lookup(s.flag); s.flag != "" && f.Changed {
			value, err = f.Value.String(), nil
		}
		if err != nil {
			lines = append(lines, err.Error())
			settings[i].failed, unread = true, true
		}
		if value != "" {
			values[s.env] = value
		}
	}
	got, err := env.ParseAsWithOptions[T](env.Options{Environment: values})
	all, _ := errors.AsType[env.AggregateError](err) // it returns no other
	for _, e := range all.Errors {
		lines = append(lines, explain(settings, e)...)
	}
	if whole, ok := any(got).(interface{ faults() []string }); ok && !unread {
		lines = append(lines, whole.faults()...)
	}
	switch len(lines) {
	case 0:
		return got, nil
	case 1:
		return got, misuse{errors.New(lines[0])}
	}
	return got, misuse{fmt.Errorf("%d settings cannot be used:\n  %s", len(lines), strings.Join(lines, "\n  "))}
}

// maxSecretFile is how many bytes the file of a secret has at most.
const maxSecretFile = 1 << 20

// environment returns the value that the environment gives a setting; "" if it gives none. The value of a secret may be
// in a file; the line breaks at the end of the file are not part of the value.
func (p program) environment(s setting) (string, error) {
	value := p.getenv(s.env)
	if !s.secret {
		return value, nil
	}
	name := s.env + fileSuffix
	path := p.getenv(name)
	if path == "" {
		return value, nil
	}
	if value != "" {
		return "", fmt.Errorf("%s and %s are both set: set one of them", s.env, name)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	if len(text) > maxSecretFile {
		return "", fmt.Errorf("%s: the file %s has more than %d bytes", name, path, maxSecretFile)
	}
	value = strings.TrimRight(string(text), "\r\n")
	if value == "" {
		return "", fmt.Errorf("%s: the file %s is empty", name, path)
	}
	return value, nil
}

// explain returns lines that say what err means for the settings. It returns none if the error of the setting was already reported.
func explain(settings []setting, err error) []string {
	missing, isMissing := errors.AsType[env.VarIsNotSetError](err)
	wrong, isWrong := errors.AsType[env.ParseError](err)
	for _, s := range settings {
		if isMissing && s.env == missing.Key {
			if s.failed {
				return nil
			}
			return []string{fmt.Sprintf("%s is needed: %s", s, s.help)}
		}
		if isWrong && s.field == wrong.Name {
			return []string{fmt.Sprintf("%s: %v", s, wrong.Err)}
		}
	}
	return []string{err.Error()}
}
