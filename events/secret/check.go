package secret

import (
	"errors"
	"strings"
	"unicode"
)

// minChosen is the length of the shortest secret that Check accepts, in bytes.
const minChosen = 16

// Check returns an error if a text is not clearly a secret. A known secret is replaced in the texts of every chat, so
// it must not be a text that a person or a model writes by itself, such as a word, a path or a date.
func Check(s string) error {
	switch {
	case len(s) < minChosen:
		return errors.New("is shorter than 16 bytes")
	case strings.ContainsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }):
		return errors.New("contains a blank or a control character")
	case isPath(s):
		return errors.New("looks like a path")
	case !isRandom(s):
		return errors.New("consists of words or of a number, so it is too easy to guess")
	}
	return nil
}

// isPath reports whether s is a path. Base64 has slashes too, but a long random part between them.
func isPath(s string) bool {
	parts := strings.FieldsFunc(s, func(r rune) bool { return r == '/' || r == '\\' })
	for _, start := range []string{"/", "./", "../", "~/"} {
		if strings.HasPrefix(s, start) && len(parts) > 1 {
			return true
		}
	}
	if len(parts) == 1 && parts[0] == s {
		return false
	}
	for _, part := range parts {
		if len(part) >= minChosen && isRandom(part) {
			return false
		}
	}
	return true
}

// The number of unusual pairs of a random text, and their share of all pairs in percent. Of random texts of 16 letters,
// one in 200 has fewer. Of texts made of words, one in 30 has more. A time has fewer letters.
const (
	minUnusual      = 6
	minUnusualShare = 40
	minLetters      = 3
)

// isRandom reports whether many pairs of neighbouring characters are unusual in words, names and numbers. It does not
// count the separators of names.
func isRandom(s string) bool {
	pairs, unusual, letters := 0, 0, 0
	for i := range len(s) {
		if isLetter(lower(s[i])) {
			letters++
		}
	}
	for i := 1; i < len(s); i++ {
		a, b := lower(s[i-1]), lower(s[i])
		if isSeparator(a) || isSeparator(b) {
			continue
		}
		pairs++
		switch {
		case a == b:
		case isLetter(a) && isLetter(b):
			if !strings.ContainsRune(usualAfter[a-'a'], rune(b)) {
				unusual++
			}
		case isDigit(a) && isDigit(b):
			if step := int(b) - int(a); step < -1 || step > 1 {
				unusual++
			}
		default: // a letter beside a digit, or a sign
			unusual++
		}
	}
	return unusual >= minUnusual && unusual*100 >= pairs*minUnusualShare && letters >= minLetters
}

func lower(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		return b - 'A' + 'a'
	}
	return b
}

func isLetter(b byte) bool    { return 'a' <= b && b <= 'z' }
func isDigit(b byte) bool     { return '0' <= b && b <= '9' }
func isSeparator(b byte) bool { return strings.IndexByte("-_.:/\\=,", b) >= 0 }

// usualAfter are the letters that often follow a letter in the words of English texts and programs, from a to z.
var usualAfter = [26]string{
	"bcdgilmnprstuy", "aelou", "aehiklortu", "aeios", "acdefglmnprstvwx", "aefio",
	"ehir", "aeio", "acdefglmnoprstv", "", "es", "adeilosty",
	"aeiop", "acdefginost", "cdlmnoprstuvw", "aeiloprstu", "u", "acdeimnorstuy",
	"acehiopstu", "acehilorstuy", "belmnprst", "aei", "aei", "x",
	"", "",
}
