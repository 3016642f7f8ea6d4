package command

import (
	"errors"
	"strings"

	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
	"github.com/carillonhq/carillon/cmd/carillon/cli/profile"
)

// LoginProfile returns the name and the content of the profile that a login changes: --profile, CARILLON_PROFILE, the current one or
// "default". Its URL is that of --url, CARILLON_URL, the profile or DefaultURL.
func (s *Session) LoginProfile() (string, profile.Profile, error) {
	path, err := s.ConfigPath()
	if err != nil {
		return "", profile.Profile{}, err
	}
	config, err := profile.Load(path)
	if err != nil {
		return "", profile.Profile{}, err
	}
	url := s.Env.Getenv("CARILLON_URL")
	if f := s.Command.Flags().Lookup("url"); f != nil && f.Changed {
		url = f.Value.String()
	}
	name := s.options.profile
	if name == "" {
		name = s.Env.Getenv("CARILLON_PROFILE")
	}
	if name == "" {
		name = config.Current
		if p := config.Profiles[name]; name == "" || p.SignIn == profile.SignInDev || url != "" && p.URL != url {
			name = "default"
		}
	}
	if err := profile.CheckName(name); err != nil {
		return "", profile.Profile{}, exit.Misused("%w", err)
	}
	p := config.Profiles[name]
	if url != "" {
		p.URL = strings.TrimRight(url, "/")
	}
	if p.URL == "" {
		p.URL = DefaultURL
	}
	return name, p, checkURL(p.URL)
}

// ChosenProfile returns the name of the profile that --profile, CARILLON_PROFILE or the file selects.
func (s *Session) ChosenProfile() (string, error) {
	path, err := s.ConfigPath()
	if err != nil {
		return "", err
	}
	config, err := profile.Load(path)
	if err != nil {
		return "", err
	}
	for _, name := range []string{s.options.profile, s.Env.Getenv("CARILLON_PROFILE"), config.Current} {
		if name != "" {
			return name, nil
		}
	}
	return "", &exit.Error{Code: exit.NotFound, Err: errors.New("no profile is chosen"), Remedy: "carillon profile list shows the profiles"}
}
