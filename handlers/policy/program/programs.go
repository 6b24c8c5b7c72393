package program

// programs are the programs that a rule on their name can allow. Each program in Defaults has the list of its harmless
// options, from the manuals of GNU and ripgrep. An option that is not listed asks.
var programs = map[string]program{
	"echo":     {known: true, freely: true},
	"pwd":      {known: true, freely: true},
	"true":     {known: true, freely: true},
	"false":    {known: true, freely: true},
	":":        {known: true, freely: true},
	"tr":       {known: true, freely: true},
	"sleep":    {known: true, freely: true},
	"basename": {known: true, freely: true},
	"dirname":  {known: true, freely: true},
	"which":    {known: true, freely: true},
	"type":     {known: true, freely: true},
	"whoami":   {known: true, freely: true},
	"id":       {known: true, freely: true},
	"uname":    {known: true, freely: true},
	"nproc":    {known: true, freely: true},
	"seq":      {known: true, freely: true},
	"printf":   {known: true, freely: true, also: printfFormat},
	"hostname": {readsOnly: true, options: harmless("a A d f i I s y alias all-fqdns domain fqdn long ip-address all-ip-addresses short"), also: noArguments},
	"date":     {readsOnly: true, options: harmless("d= date= r: reference: u utc universal R rfc-email I=? iso-8601=? rfc-3339= debug"), also: dateSets},
	"test":     {known: true, readsOnly: true, also: testOperators},

	"ls": {readsOnly: true, options: harmless(`a A b B c C d D f F g G h H i I= k l L m n N o p q Q r R s S t T= u U v w= x X Z 1 all almost-all author escape block-size=
		ignore-backups color=? directory dired classify=? file-type format= full-time group-directories-first no-group human-readable si dereference-command-line
		hide= hyperlink=? indicator-style= inode ignore= kibibytes dereference numeric-uid-gid literal hide-control-chars show-control-chars quote-name
		quoting-style= reverse recursive size sort= time= time-style= tabsize= width= context zero`)},
	"cat":     {readsOnly: true, options: harmless("A b e E n s t T u v show-all number-nonblank show-ends number squeeze-blank show-tabs show-nonprinting")},
	"tac":     {readsOnly: true, options: harmless("b r s= before regex separator=")},
	"rev":     {readsOnly: true, options: options{}},
	"nl":      {readsOnly: true, options: harmless("b= d= f= h= i= l= n= p s= v= w= body-numbering= section-delimiter= line-increment= number-format= no-renumber number-separator= number-width=")},
	"head":    {readsOnly: true, options: harmless("# c= n= q v z bytes= lines= quiet silent verbose zero-terminated")},
	"tail":    {readsOnly: true, options: harmless("# c= n= f F q s= v z bytes= lines= follow=? quiet silent sleep-interval= verbose retry pid= zero-terminated"), also: tailFollows},
	"wc":      {readsOnly: true, options: harmless("c m l L w bytes chars lines words max-line-length total=")},
	"cut":     {readsOnly: true, options: harmless("b= c= d= f= n s z bytes= characters= delimiter= fields= complement only-delimited output-delimiter= zero-terminated")},
	"paste":   {readsOnly: true, options: harmless("d= s z delimiters= serial zero-terminated")},
	"join":    {readsOnly: true, options: harmless("a= e= i j= o= t= v= z 1= 2= check-order nocheck-order header ignore-case")},
	"comm":    {readsOnly: true, options: harmless("1 2 3 z check-order nocheck-order output-delimiter= total zero-terminated")},
	"cmp":     {readsOnly: true, options: harmless("b i= l n= s print-bytes ignore-initial= verbose bytes= quiet silent")},
	"fold":    {readsOnly: true, options: harmless("# b s w= bytes spaces width=")},
	"fmt":     {readsOnly: true, options: harmless("# c p= s t u w= g= crown-margin prefix= split-only tagged-paragraph uniform-spacing width= goal=")},
	"expand":  {readsOnly: true, options: harmless("i t= initial tabs=")},
	"column":  {readsOnly: true, options: harmless("c= s= o= n= N= H= l= R= W= T= O= E= d e J L t x table separator= output-separator= json keep-empty-lines output-width= fillrows")},
	"od":      {readsOnly: true, options: harmless("A= N= j= S= t= w=? a b c d f i l o s v x address-radix= read-bytes= skip-bytes= strings=? format= width=? output-duplicates")},
	"hexdump": {readsOnly: true, options: harmless("b c C d e= n= o s= v x canonical one-byte-octal length= skip= no-squeezing")},
	"xxd":     {most: 1, options: harmless("a b c= C d E e g= i l= n= o= p r s= u")},
	"base64":  {readsOnly: true, options: harmless("d D i w= decode ignore-garbage wrap=")},
	"stat":    {readsOnly: true, options: harmless("c= f L t dereference file-system format= printf= terse cached=")},
	"du": {readsOnly: true, options: harmless(`0 a A b B= c d= D h H k l L m P s S t= x null all apparent-size block-size= bytes total max-depth= dereference-args
		human-readable inodes count-links dereference no-dereference si separate-dirs summarize threshold= time=? time-style= one-file-system exclude=`)},
	"df":        {readsOnly: true, options: harmless("a B= h H i k l P t= T x= all block-size= human-readable si inodes local output=? portability total type= print-type exclude-type=")},
	"tree":      {readsOnly: true, alone: true, options: harmless("a d f i l x L= P= I= p u g s h D F N Q r t U v c C n A S J X noreport dirsfirst prune si du inodes device")},
	"file":      {readsOnly: true, options: harmless("b E e= F= h i k L N n r s v 0 brief dereference extension mime mime-type mime-encoding keep-going no-pad no-buffer print0 raw separator= no-dereference")},
	"realpath":  {readsOnly: true, options: harmless("e m L P q s z canonicalize-existing canonicalize-missing logical physical quiet relative-to: relative-base: strip no-symlinks zero")},
	"readlink":  {readsOnly: true, options: harmless("f e m n q s v z canonicalize canonicalize-existing canonicalize-missing no-newline quiet silent verbose zero")},
	"md5sum":    checksums,
	"sha1sum":   checksums,
	"sha224sum": checksums,
	"sha256sum": checksums,
	"sha384sum": checksums,
	"sha512sum": checksums,
	"b2sum":     checksums,
	"cksum":     checksums,
	"uniq":      {most: 1, options: harmless("# c d D f= i s= u w= z count repeated all-repeated=? skip-fields= group=? ignore-case skip-chars= unique zero-terminated check-chars=")},
	"shuf":      {readsOnly: true, options: harmless("e i= n= r z echo input-range= head-count= repeat zero-terminated")},
	"sort": {readsOnly: true, options: harmless(`b d f g i M h n R r V c C k= m s S= t= u z ignore-leading-blanks dictionary-order ignore-case general-numeric-sort
		ignore-nonprinting month-sort human-numeric-sort numeric-sort random-sort reverse sort= version-sort check=? debug key= merge stable buffer-size=
		field-separator= parallel= unique zero-terminated`)},
	"diff": {readsOnly: true, trees: treeOptions{always: true, follows: []string{"*"}}, options: harmless(`# q s c C= u U= e n y W= p F= t T r N x= X: i E Z b w B a I= d brief
		report-identical-files normal context=? unified=? ed rcs side-by-side width= left-column suppress-common-lines show-c-function show-function-line=
		label= expand-tabs initial-tab tabsize= suppress-blank-empty recursive no-dereference new-file unidirectional-new-file ignore-file-name-case
		no-ignore-file-name-case exclude= exclude-from: starting-file= from-file: to-file: ignore-case ignore-tab-expansion ignore-trailing-space
		ignore-space-change ignore-all-space ignore-blank-lines ignore-matching-lines= text strip-trailing-cr minimal horizon-lines= speed-large-files color=?`)},
	"grep": {readsOnly: true, pattern: []string{"e", "regexp"}, trees: treeOptions{here: true, options: []string{"r", "R", "recursive", "dereference-recursive", "d", "directories"}, follows: []string{"R", "dereference-recursive"},
		skips: []string{"exclude-dir"}, only: []string{"include"}},
		options: harmless(`# A= B= C= e= E F G P H I L R T U V Z a b c d= D= h i l m= n o q r s v w x y z extended-regexp fixed-strings basic-regexp perl-regexp
			regexp= ignore-case no-ignore-case word-regexp line-regexp null-data no-messages invert-match max-count= byte-offset line-number line-buffered
			with-filename no-filename label= only-matching quiet silent binary-files= text directories= devices= recursive dereference-recursive include=
			exclude= exclude-from: exclude-dir= files-without-match files-with-matches count initial-tab null before-context= after-context= context=
			color=? colour=? binary`)},
	"rg": {readsOnly: true, pattern: []string{"e", "regexp", "files", "type-list"}, trees: treeOptions{always: true, here: true, visible: []string{"hidden", ".", "u", "unrestricted"}, follows: []string{"L", "follow"}},
		options: harmless(`. A= B= C= E= F H I L M= N P S T= U V a b c d= e= g= h i j= l m= n o p q r= s t= u v w x 0 regexp= after-context= before-context= context=
			auto-hybrid-regex no-auto-hybrid-regex binary no-binary block-buffered byte-offset case-sensitive color= colors= column no-column context-separator=
			no-context-separator count count-matches crlf no-crlf debug dfa-size-limit= encoding= no-encoding engine= field-context-separator= field-match-separator=
			files files-with-matches files-without-match fixed-strings no-fixed-strings follow no-follow glob= glob-case-insensitive heading no-heading hidden
			no-hidden iglob= ignore-case ignore-file-case-insensitive include-zero invert-match no-invert-match json no-json line-buffered line-number
			no-line-number line-regexp max-columns= max-columns-preview max-count= max-depth= maxdepth= max-filesize= mmap no-mmap multiline no-multiline
			multiline-dotall no-config no-filename no-ignore no-ignore-dot no-ignore-exclude no-ignore-files no-ignore-global no-ignore-messages no-ignore-parent
			no-ignore-vcs no-messages no-pcre2-unicode no-require-git no-unicode null null-data one-file-system only-matching passthru path-separator= pcre2
			pretty quiet regex-size-limit= replace= smart-case sort= sortr= stats stop-on-nonmatch text threads= trace trim no-trim type= type-list type-not=
			type-add= type-clear= unrestricted version help vimgrep with-filename word-regexp`)},
	"find": {readsOnly: true, oneDash: true, also: findPredicates, options: harmless(`H L P a and o or not amin= anewer: atime= cmin= cnewer: ctime= d daystart depth empty
		executable false follow fstype= gid= group= ilname= iname= inum= ipath= iregex= iwholename= links= lname= ls maxdepth= mindepth= mmin= mount mtime= name=
		newer: newermt= newerct= newerat= nogroup noignore_readdir_race noleaf nouser nowarn path= perm= print print0 printf= prune quit readable regex= regextype= samefile:
		size= true type= uid= used= user= warn wholename= writable xdev xtype=`)},
	"sed": {readsOnly: true, pattern: []string{"e", "expression"}, also: sedScripts, options: harmless(`n e= E r s u z l= expression= quiet silent debug line-length= posix
		regexp-extended separate unbuffered null-data sandbox`)},
	"jq": {readsOnly: true, pattern: []string{}, also: jqFilter, options: harmless(`e s r j a S C M c n R b seq stream slurp raw-input null-input compact-output tab color-output monochrome-output ascii-output
		unbuffered sort-keys raw-output join-output raw-output0 exit-status indent= binary`)},
	"tar": {trees: treeOptions{always: true, follows: []string{"h", "dereference"}}, also: tarArchives, options: harmless(`c t v z j J a f: C: h p k m O S b= exclude= file: directory: create list verbose gzip bzip2 xz zstd lzma auto-compress
		dereference sort= owner= group= mtime= mode= numeric-owner no-recursion exclude-vcs exclude-vcs-ignores wildcards no-wildcards totals
		exclude-backups one-file-system format= same-permissions preserve-permissions no-same-owner no-same-permissions to-stdout`)},
	"zip":   {trees: treeOptions{options: []string{"r", "R", "recurse-paths", "recurse-patterns"}, follows: []string{"*"}}, options: harmless("r R q v 0 1 2 3 4 5 6 7 8 9 j y X D o u f d x i recurse-paths quiet junk-paths symlinks exclude include update freshen")},
	"dmesg": {readsOnly: true, options: harmless("f= l= t T e H k u x P L=? d color=? decode facility= human kernel level= nopager notime ctime reltime userspace show-delta")},
	"cp":    {known: true, valued: "tS", trees: treeOptions{options: []string{"r", "R", "a", "recursive", "archive"}, follows: []string{"L", "H", "dereference"}}},
	"mv":    {known: true, valued: "tS", trees: treeOptions{always: true, noContent: true}},
	"rm":    {known: true, trees: treeOptions{options: []string{"r", "R", "recursive"}, noContent: true}},
	"chmod": {known: true, trees: treeOptions{options: []string{"R", "recursive"}, noContent: true}},

	"go": {oneDash: true, known: true, valued: "op", letters: "Cw", also: goFlags,
		free:   []string{"run", "bench", "skip", "tags", "list", "fuzz", "ldflags", "f"},
		words:  []string{"run", "bench", "skip", "tags", "list", "fuzz", "ldflags", "timeout", "count", "coverprofile", "cpuprofile", "memprofile", "outputdir"},
		danger: []string{"exec", "toolexec", "vettool", "overlay", "modfile", "compiler", "gccgoflags", "gcflags", "asmflags", "pkgdir", "workfile"}},
	"make":  {known: true, valued: "CIjlfoWE", letters: "fIE", words: []string{"directory"}, danger: []string{"eval", "file", "makefile", "include-dir"}, also: makeVariables},
	"gmake": {known: true, valued: "CIjlfoWE", letters: "fIE", words: []string{"directory"}, danger: []string{"eval", "file", "makefile", "include-dir"}, also: makeVariables},
	"cargo": {letters: "CZ", danger: []string{"config"}},
	"npm":   packages, "pnpm": packages, "yarn": packages, "bun": packages,
	"docker": {letters: "Hc", danger: []string{"host", "context", "config"}},
	"pytest": {letters: "cp", danger: []string{"rootdir", "confcutdir", "override-ini", "config-file", "pdbcls", "pastebin"}},
}

var checksums = program{readsOnly: true, options: harmless("a= b l= t z binary tag text zero length= algorithm= untagged base64 raw")}

// packages are the package managers of JavaScript. npm takes abbreviated options, with one dash too.
var packages = program{oneDash: true, letters: "Cgcr", exact: []string{"production", "cache"},
	danger: []string{"prefix", "script-shell", "shell", "node-options", "userconfig", "globalconfig", "global", "registry", "call", "package", "git", "editor", "viewer",
		"browser", "init-module", "onload-script", "location", "dir", "cwd", "use-yarnrc", "config", "eval", "preload",
		"require"}}

// tool is a program with sub-commands. A sub-command that is not listed needs a rule that names it.
type tool struct {
	freely []string // one or two words that any matching rule allows
	never  []string // sub-commands that no rule allows
	groups []string // words whose next word is the action
	wholly []string // sub-commands that fetch and run code: a rule must name every argument
	runs   []string // sub-commands before another command
	bare   bool     // without a sub-command, it takes options like any program
}

var tools = map[string]tool{
	"npm": {freely: []string{"run", "run-script", "test", "t", "start", "stop", "ls", "list", "outdated", "view", "info", "explain", "why", "ci"},
		never:  []string{"run env", "run-script env", "exec", "x", "config", "set", "set-script", "explore", "edit", "publish", "token", "login", "adduser", "init", "create", "link", "rebuild", "c"},
		wholly: []string{"install", "i", "add", "isntall", "in", "update", "up", "upgrade"}},
	"pnpm": {freely: []string{"run", "test", "t", "start", "ls", "list", "outdated", "why"}, never: []string{"run env", "exec", "dlx", "config", "create", "publish", "link", "env", "init", "setup"},
		wholly: []string{"install", "i", "add", "update", "up"}},
	"yarn": {freely: []string{"run", "test", "start", "list", "why", "info", "outdated"}, never: []string{"run env", "exec", "dlx", "node", "config", "create", "publish", "link", "set", "plugin", "init", "global"},
		wholly: []string{"install", "add", "upgrade", "up"}},
	"bun": {freely: []string{"run", "test", "build"}, never: []string{"x", "exec", "create", "repl", "link", "publish", "init", "upgrade"}, wholly: []string{"install", "i", "add", "update"}},
	"deno": {freely: []string{"test", "lint", "check", "fmt", "doc", "info"},
		never: []string{"eval", "repl", "run", "serve", "x", "install", "task", "compile", "jupyter", "upgrade", "publish"}},
	"go": {freely: []string{"build", "test", "vet", "list", "version", "doc", "env", "fmt", "mod graph", "mod why", "mod verify"}, never: []string{"tool", "bug", "telemetry"},
		groups: []string{"mod", "work"}, wholly: []string{"get", "install"}},
	"cargo": {freely: []string{"build", "b", "test", "t", "check", "c", "clippy", "fmt", "tree", "doc", "bench", "metadata", "nextest"},
		never: []string{"install", "publish", "login", "owner", "yank", "logout"}, wholly: []string{"add"}},
	"pip":  {freely: []string{"list", "show", "freeze", "check"}, wholly: []string{"install", "download", "wheel"}, never: []string{"config", "cache", "debug"}},
	"pip3": {freely: []string{"list", "show", "freeze", "check"}, wholly: []string{"install", "download", "wheel"}, never: []string{"config", "cache", "debug"}},
	"docker": {freely: []string{"ps", "images", "version", "info", "logs", "top", "stats", "port", "compose ps", "compose logs", "compose ls", "compose images", "compose top"},
		never:  []string{"run", "exec", "cp", "create", "compose run", "compose exec", "compose cp", "plugin", "context", "buildx", "commit", "import", "load", "save", "export"},
		groups: []string{"compose", "container", "image", "volume", "network", "system"}},
	"podman":    {freely: []string{"ps", "images", "version", "info", "logs", "top", "stats", "port"}, never: []string{"run", "exec", "cp", "create", "machine", "unshare", "play", "kube"}, groups: []string{"container", "image", "volume", "network", "system"}},
	"kubectl":   {freely: []string{"describe", "logs", "version", "top", "explain", "api-resources"}, never: []string{"exec", "cp", "port-forward", "proxy", "run", "debug", "edit", "plugin", "config", "attach"}},
	"gh":        {freely: []string{"pr list", "pr view", "pr status", "pr diff", "pr checks", "issue list", "issue view", "issue status", "run list", "run view", "repo view", "release list", "release view"}, never: []string{"alias", "extension", "codespace", "auth", "config", "secret", "ssh-key", "gpg-key"}, groups: []string{"pr", "issue", "run", "repo", "release", "workflow", "api", "gist", "label"}},
	"uv":        {never: []string{"tool", "python", "self", "publish"}, runs: []string{"run"}, wholly: []string{"add", "pip"}},
	"poetry":    {freely: []string{"check", "show"}, never: []string{"config", "self", "publish", "shell"}, runs: []string{"run"}, wholly: []string{"add"}},
	"pipenv":    {never: []string{"shell"}, runs: []string{"run"}, wholly: []string{"install"}},
	"bundle":    {freely: []string{"list", "show", "check", "outdated"}, never: []string{"config", "console", "plugin", "open"}, runs: []string{"exec"}, wholly: []string{"add"}},
	"composer":  {freely: []string{"show", "validate", "outdated"}, never: []string{"config", "global", "exec", "create-project"}, wholly: []string{"require"}},
	"gem":       {freely: []string{"list"}, never: []string{"exec", "open"}, wholly: []string{"install"}},
	"rustup":    {freely: []string{"show"}, never: []string{"run", "default", "toolchain", "self", "override"}},
	"hg":        {freely: []string{"status", "log", "diff"}, never: []string{"config", "debugshell", "bisect"}},
	"svn":       {freely: []string{"status", "log", "info"}, never: []string{"propset", "propedit"}},
	"terraform": {freely: []string{"validate", "version", "output"}, never: []string{"console", "login"}},
}
