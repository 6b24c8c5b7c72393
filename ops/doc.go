// Package ops holds the container images and the unit file, the NATS server's configuration (natsconf), the records of
// decisions (adr), and tests of the structure of the repository.
//
// Promises, each a test here: no import crosses a border that layout_test.go names. Every package has one package
// comment. Lines fit into 120 columns. pocketcoder-shell links only its protocol. The images install the versions that
// the bridge was written against.
//
// It must not hold code that runs in the product.
package ops
