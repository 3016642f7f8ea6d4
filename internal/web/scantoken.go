package web

import (
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

func (s *scanner) literal(word string) error {
	for i := range len(word) {
		if s.next() != word[i] {
			return s.syntax()
		}
		s.pos++
	}
	return nil
}

func (s *scanner) number() error {
	if s.next() == '-' {
		s.pos++
	}
	if s.next() == '0' {
		s.pos++
	} else if !s.digits() {
		return s.syntax()
	}
	if s.next() == '.' {
		s.pos++
		if !s.digits() {
			return s.syntax()
		}
	}
	if c := s.next(); c == 'e' || c == 'E' {
		s.pos++
		if c := s.next(); c == '+' || c == '-' {
			s.pos++
		}
		if !s.digits() {
			return s.syntax()
		}
	}
	return nil
}

func (s *scanner) digits() bool {
	start := s.pos
	for '0' <= s.next() && s.next() <= '9' {
		s.pos++
	}
	return s.pos > start
}

// text reads a string and returns its text. A string without escapes is a slice of the source.
func (s *scanner) text() ([]byte, error) {
	s.pos++
	start := s.pos
	var decoded []byte // the text before start, if it has an escape
	for {
		switch c := s.next(); {
		case c == '"':
			plain := s.src[start:s.pos:s.pos]
			s.pos++
			if decoded == nil {
				return plain, nil
			}
			return append(decoded, plain...), nil
		case c == '\\':
			decoded = append(decoded, s.src[start:s.pos]...)
			r, err := s.escape()
			if err != nil {
				return nil, err
			}
			decoded = utf8.AppendRune(decoded, r)
			start = s.pos
		case c < 0x20:
			return nil, s.syntax()
		case c < utf8.RuneSelf:
			s.pos++
		default:
			r, n := utf8.DecodeRune(s.src[s.pos:])
			if r == utf8.RuneError && n == 1 {
				return nil, s.malformed("invalid_utf8", "byte %d is not UTF-8", s.pos)
			}
			s.pos += n
		}
	}
}

func (s *scanner) escape() (rune, error) {
	s.pos++
	c := s.next()
	if i := strings.IndexByte(`"\/bfnrt`, c); i >= 0 && c != 0 {
		s.pos++
		return rune("\"\\/\b\f\n\r\t"[i]), nil
	}
	if c != 'u' {
		return 0, s.syntax()
	}
	s.pos++
	r, err := s.hex()
	if err != nil {
		return 0, err
	}
	if r == 0 {
		s.note("nul", "U+0000 cannot be stored")
		return r, nil
	}
	if !utf16.IsSurrogate(r) {
		return r, nil
	}
	at := s.pos - 6
	if s.next() == '\\' && s.pos+1 < len(s.src) && s.src[s.pos+1] == 'u' {
		s.pos += 2
		low, err := s.hex()
		if err != nil {
			return 0, err
		}
		if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
			return pair, nil
		}
	}
	return 0, s.malformed("lone_surrogate", "the escape at byte %d is half of a surrogate pair", at)
}

func (s *scanner) hex() (rune, error) {
	var r rune
	for range 4 {
		switch c := s.next(); {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case 'A' <= c && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, s.syntax()
		}
		s.pos++
	}
	return r, nil
}
