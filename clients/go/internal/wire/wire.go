// Package wire checks the rules for operations in JSON that the standard library does not check.
package wire

import (
	"encoding/json"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

var rfc3339 = regexp.MustCompile(
	`^\d{4}-\d\d-\d\d[Tt ](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)$`)

// Object reads a JSON object. It refuses text that encoding/json would alter: invalid UTF-8 and unpaired surrogates. Names
// are case-sensitive, unlike those decoded into a struct.
func Object(raw []byte) (map[string]json.RawMessage, error) {
	if !utf8.Valid(raw) {
		return nil, errors.New("it is not UTF-8")
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return nil, errors.New("it is not a JSON object")
		}
		return nil, errors.New("it is not valid JSON: " + err.Error())
	}
	if fields == nil {
		return nil, errors.New("it is not a JSON object")
	}
	return fields, checkEscapes(raw)
}

// checkEscapes finds \u0000 and half surrogate pairs in valid JSON.
func checkEscapes(raw []byte) error {
	high := false // the previous escape was the first half of a pair
	for i := 0; i < len(raw); i++ {
		unit := rune(0)
		isUnit := raw[i] == '\\' && raw[i+1] == 'u'
		if isUnit {
			number, _ := strconv.ParseUint(string(raw[i+2:i+6]), 16, 16)
			unit = rune(number)
		}
		isLow := isUnit && unit >= 0xDC00 && unit <= 0xDFFF
		switch {
		case isLow != high:
			return errors.New("it has an unpaired surrogate")
		case isUnit && unit == 0:
			return errors.New("it has a NUL")
		}
		high = isUnit && utf16.IsSurrogate(unit) && !isLow
		if isUnit {
			i += 5
		} else if raw[i] == '\\' {
			i++
		}
	}
	return nil
}

// Text reads a field that must be a string.
func Text(fields map[string]json.RawMessage, name string) (string, error) {
	raw, given := fields[name]
	if !given {
		return "", errors.New(name + " is missing")
	}
	var text *string
	if json.Unmarshal(raw, &text) != nil || text == nil {
		return "", errors.New(name + " must be a string")
	}
	return *text, nil
}

// Parents reads the optional list of strings. The result is never nil.
func Parents(fields map[string]json.RawMessage) ([]string, error) {
	parents := []string{}
	var given []*string
	if raw, ok := fields["parents"]; ok && json.Unmarshal(raw, &given) != nil {
		return nil, errors.New("parents must be a list of strings")
	}
	for _, parent := range given {
		if parent == nil {
			return nil, errors.New("parents must be a list of strings")
		}
		parents = append(parents, *parent)
	}
	return parents, nil
}

// Time reads RFC 3339 with any offset, from year 1 to 9999 in UTC.
func Time(text string) (time.Time, error) {
	wrong := errors.New("timestamp must be RFC 3339 with a time zone, such as 2014-11-06T11:04:39.041Z")
	if !rfc3339.MatchString(text) {
		return time.Time{}, wrong
	}
	at, err := time.Parse(time.RFC3339, strings.Replace(strings.ToUpper(text), " ", "T", 1))
	if at = at.UTC(); err != nil || at.Year() < 1 || at.Year() > 9999 {
		return time.Time{}, wrong
	}
	return at, nil
}
