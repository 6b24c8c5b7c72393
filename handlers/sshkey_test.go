package handlers_test

import (
	"crypto/dsa" //lint:ignore SA1019 a key of this kind has to be made to be refused
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"math/big"
	"strings"
	"testing"

	"github.com/matryer/is"
	"golang.org/x/crypto/ssh"

	"pocketcoder/handlers/sshkey"
)

// sshLine is a public key as in a .pub file.
func sshLine(t *testing.T, public any) string {
	t.Helper()
	key, err := ssh.NewPublicKey(public)
	is.New(t).NoErr(err)
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

func TestSSHKeysOfTodayAreTaken(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ed, _, err := ed25519.GenerateKey(rand.Reader)
	is.NoErr(err)
	ec, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	is.NoErr(err)
	rs, err := rsa.GenerateKey(rand.Reader, 2048)
	is.NoErr(err)
	for _, c := range []struct {
		public    any
		algorithm string
		bits      int
	}{{ed, "ssh-ed25519", 256}, {ec.Public(), "ecdsa-sha2-nistp384", 384}, {rs.Public(), "ssh-rsa", 2048}} {
		line := sshLine(t, c.public)
		key, err := sshkey.Parse(" " + line + "  my \t phone\n")
		is.NoErr(err)
		is.Equal(key.Line, line+" my phone")
		is.Equal([]any{key.Algorithm, key.Bits, key.Comment}, []any{c.algorithm, c.bits, "my phone"})
		parsed, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
		is.NoErr(err)
		is.Equal(strings.TrimRight(key.Fingerprint, "="), ssh.FingerprintSHA256(parsed))
	}
}

func TestWeakAndOddSSHKeysAreRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ed, signer, err := ed25519.GenerateKey(rand.Reader)
	is.NoErr(err)
	line := sshLine(t, ed)
	short := &rsa.PublicKey{N: new(big.Int).SetBit(big.NewInt(1), 2046, 1), E: 65537}
	old := &dsa.PublicKey{Parameters: dsa.Parameters{P: new(big.Int).SetBit(big.NewInt(1), 1023, 1),
		Q: new(big.Int).SetBit(big.NewInt(1), 159, 1), G: big.NewInt(2)}, Y: big.NewInt(3)}
	public, err := ssh.NewPublicKey(ed)
	is.NoErr(err)
	authority, err := ssh.NewSignerFromKey(signer)
	is.NoErr(err)
	certificate := &ssh.Certificate{Key: public, CertType: ssh.UserCert}
	is.NoErr(certificate.SignCert(rand.Reader, authority))
	for _, c := range []struct{ line, want string }{
		{sshLine(t, short), "2048 bits"},
		{sshLine(t, old), "ssh-dss"},
		{strings.TrimSpace(string(ssh.MarshalAuthorizedKey(certificate))), "cert-v01"},
		{`command="sh" ` + line, "without options"},
		{line + "\n" + line, "one line"},
		{line + "\x1b[2J", "one line"},
		{"", "public key"},
		{"ssh-ed25519 AAAA", "public key"},
		{line + strings.Repeat(" x", 9000), "one line"},
	} {
		_, err := sshkey.Parse(c.line)
		is.True(err != nil && strings.Contains(err.Error(), c.want))
	}
}
