package seatbelt

// base is what every process needs on macOS, whatever the policy says. It shows
// the system's own files and nothing of a user's. Below /System only what is the
// system's is named: /System/Volumes/Data is the disk with everybody's files.
const base = `(version 1)
(deny default)
(allow process-fork)
(allow process-info* (target same-sandbox))
(allow signal (target same-sandbox))
(allow mach-priv-task-port (target same-sandbox))
(allow file-read* file-test-existence
  (literal "/")
  (literal "/dev/null")
  (literal "/dev/zero")
  (literal "/dev/random")
  (literal "/dev/urandom")
  (literal "/dev/dtracehelper")
  (subpath "/dev/fd"))
(allow file-write-data file-ioctl
  (literal "/dev/null")
  (literal "/dev/zero")
  (literal "/dev/dtracehelper"))
(allow file-write-data (subpath "/dev/fd"))
(allow file-read* file-test-existence file-map-executable
  (subpath "/System/Library")
  (subpath "/System/Cryptexes")
  (subpath "/System/Volumes/Preboot/Cryptexes")
  (subpath "/System/iOSSupport")
  (subpath "/Library/Apple")
  (subpath "/usr/lib")
  (subpath "/private/var/db/dyld"))
(allow file-read* file-test-existence
  (subpath "/usr/share")
  (subpath "/private/var/db/timezone")
  (literal "/private/etc/localtime"))
(allow file-read-metadata file-test-existence
  (literal "/dev")
  (literal "/etc")
  (literal "/tmp")
  (literal "/var")
  (literal "/private")
  (literal "/System")
  (literal "/System/Volumes")
  (literal "/System/Volumes/Preboot")
  (literal "/Library")
  (literal "/usr"))
(allow pseudo-tty)
(allow file-read* file-write-data file-ioctl
  (literal "/dev/ptmx")
  (literal "/dev/tty"))
(allow file-read* file-write-data
  (require-all (regex #"^/dev/ttys[0-9]+$") (extension "com.apple.sandbox.pty")))
(allow file-ioctl (regex #"^/dev/ttys[0-9]+$"))
(allow ipc-posix-sem)
(allow ipc-posix-shm-read* (ipc-posix-name "apple.shm.notification_center"))
(allow mach-lookup
  (global-name "com.apple.bsd.dirhelper")
  (global-name "com.apple.logd")
  (global-name "com.apple.system.logger")
  (global-name "com.apple.system.notification_center")
  (global-name "com.apple.system.opendirectoryd.libinfo")
  (global-name "com.apple.system.opendirectoryd.membership"))
(allow sysctl-read
  (sysctl-name-prefix "hw.")
  (sysctl-name-prefix "machdep.cpu.")
  (sysctl-name-prefix "security.mac.lockdown_mode_state")
  (sysctl-name "kern.argmax")
  (sysctl-name "kern.bootargs")
  (sysctl-name "kern.boottime")
  (sysctl-name "kern.hostname")
  (sysctl-name "kern.iossupportversion")
  (sysctl-name "kern.maxfiles")
  (sysctl-name "kern.maxfilesperproc")
  (sysctl-name "kern.maxproc")
  (sysctl-name "kern.maxprocperuid")
  (sysctl-name "kern.ngroups")
  (sysctl-name "kern.osproductversion")
  (sysctl-name "kern.osrelease")
  (sysctl-name "kern.ostype")
  (sysctl-name "kern.osvariant_status")
  (sysctl-name "kern.osversion")
  (sysctl-name "kern.secure_kernel")
  (sysctl-name "kern.tcsm_available")
  (sysctl-name "kern.tcsm_enable")
  (sysctl-name "kern.usrstack64")
  (sysctl-name "kern.version")
  (sysctl-name "kern.willshutdown")
  (sysctl-name "sysctl.proc_cputype")
  (sysctl-name "sysctl.proc_native")
  (sysctl-name "sysctl.proc_translated")
  (sysctl-name "vm.loadavg"))
`

// openNetwork is the host's network, without its unix sockets: only that of the
// service which resolves names.
const openNetwork = `(allow network-outbound (remote ip))
(allow network-bind network-inbound (local ip))
(allow network-outbound (remote unix-socket (path-literal "/private/var/run/mDNSResponder")))
(allow system-socket (require-all (socket-domain AF_SYSTEM) (socket-protocol 2)))
(allow file-read* file-test-existence (literal "/private/var/run/resolv.conf"))
(allow mach-lookup
  (global-name "com.apple.SystemConfiguration.DNSConfiguration")
  (global-name "com.apple.SystemConfiguration.configd")
  (global-name "com.apple.trustd.agent"))
`

// last is what no grant contains: other names for a file, under which the rules
// about its own would not be asked, and privileges.
const last = `(deny file-link file-clone)
(deny file-write-setugid)
`
