package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
	"github.com/carillonhq/carillon/cmd/carillon/cli/profile"
)

// DefaultURL is the server of a user without a profile: the carillon dev of this machine.
const DefaultURL = "http://127.0.0.1:8080"

// Server is the server of a command.
type Server struct {
	URL        string
	Profile    string // the name of the profile; empty: none
	From       string // where the credential comes from, for people: "CARILLON_API_KEY", "profile dev"; empty: there is none
	Credential func(context.Context) (string, error)
}

// server returns the server that the flags, the environment and the profiles select, in this order.
func (s *Session) server() (Server, error) {
	path, err := s.ConfigPath()
	if err != nil {
		return s.fromEnvironment(Server{URL: DefaultURL}, profile.Profile{})
	}
	config, err := profile.Load(path)
	if err != nil {
		return Server{}, err
	}
	name, asked := s.options.profile, true
	if name == "" {
		name = s.Env.Getenv("CARILLON_PROFILE")
	}
	if name == "" {
		name, asked = config.Current, false
	}
	p, known := config.Profiles[name]
	if asked && !known {
		return Server{}, &exit.Error{Code: exit.Misuse, Err: fmt.Errorf("there is no profile %q", name), Remedy: "carillon profile list shows the profiles; carillon login --profile " + name + " makes this one"}
	}
	server := Server{URL: DefaultURL}
	if known {
		server.URL, server.Profile = p.URL, name
	}
	if s.options.profile != "" { // the flag wins over the environment
		return s.fromProfile(server, p)
	}
	return s.fromEnvironment(server, p)
}

// fromEnvironment lets the variables replace what the profile says. The profile's credential is for its own server only.
func (s *Session) fromEnvironment(server Server, p profile.Profile) (Server, error) {
	if u := strings.TrimRight(s.Env.Getenv("CARILLON_URL"), "/"); u != "" && u != server.URL {
		server.URL, server.Profile, p = u, "", profile.Profile{}
	}
	set := slices.DeleteFunc([]string{"CARILLON_API_KEY", "CARILLON_TOKEN", "CARILLON_TOKEN_COMMAND"}, func(name string) bool { return s.Env.Getenv(name) == "" })
	switch {
	case len(set) > 1:
		return server, exit.Misused("%s are both set: set one of them", strings.Join(set[:2], " and "))
	case len(set) == 1 && set[0] == "CARILLON_TOKEN_COMMAND":
		server.From, server.Credential = set[0], s.program(s.Env.Getenv(set[0]))
	case len(set) == 1:
		secret := strings.TrimSpace(s.Env.Getenv(set[0]))
		server.From, server.Credential = set[0], func(context.Context) (string, error) { return secret, nil }
	default:
		return s.fromProfile(server, p)
	}
	return server, checkURL(server.URL)
}

func (s *Session) fromProfile(server Server, p profile.Profile) (Server, error) {
	switch p.SignIn {
	case profile.SignInKey:
		server.Credential = once(func(context.Context) (string, error) { return s.Keychain().Key(p) })
	case profile.SignInProgram:
		server.Credential = s.program(p.Program)
	case profile.SignInDev:
		platform := strings.HasPrefix(s.Command.CommandPath(), "carillon platform")
		server.Credential = once(func(ctx context.Context) (string, error) { return s.Env.MintDev(ctx, p.URL, platform) })
	}
	if p.SignIn != profile.SignedOut {
		server.From = "profile " + server.Profile
	}
	return server, checkURL(server.URL)
}

// Keychain returns the keychain of this machine.
func (s *Session) Keychain() profile.Keychain {
	return profile.Keychain{Off: s.Env.Getenv("CARILLON_NO_KEYCHAIN") != ""}
}

func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return exit.Misused("%q is not the URL of a server, such as https://carillon.example.com", text)
	}
	return nil
}

// CheckURL returns an error if text is not the URL of a server.
func CheckURL(text string) error { return checkURL(text) }

// once calls a source of a credential at most once.
func once(source func(context.Context) (string, error)) func(context.Context) (string, error) {
	var do sync.Once
	var secret string
	var err error
	return func(ctx context.Context) (string, error) {
		do.Do(func() { secret, err = source(ctx) })
		return secret, err
	}
}

// program returns a source that runs a command line in the shell; it prints a token. What it writes to standard error is shown.
func (s *Session) program(line string) func(context.Context) (string, error) {
	return once(func(ctx context.Context) (string, error) {
		shell := []string{"sh", "-c", line}
		if runtime.GOOS == "windows" {
			shell = []string{"cmd", "/C", line}
		}
		cmd := exec.CommandContext(ctx, shell[0], shell[1:]...)
		cmd.Stderr, cmd.Env = s.Env.Stderr, os.Environ()
		out, err := cmd.Output()
		if err != nil {
			return "", notSignedIn(fmt.Errorf("the command that prints a token failed: %w", err))
		}
		token := string(bytes.TrimSpace(out))
		if token == "" || strings.ContainsAny(token, " \t\r\n") {
			return "", notSignedIn(errors.New("the command that prints a token printed something else"))
		}
		return token, nil
	})
}

func notSignedIn(err error) error { return &exit.Error{Code: exit.NotAllowed, Err: err} }
