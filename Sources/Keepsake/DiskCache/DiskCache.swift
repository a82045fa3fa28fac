public enum DiskCache {}
