/* The overview as SVG. */
#include "timeline/draw.h"

#include <millrace/text.h>

void mr_svg_rect(FILE *file, double x, double y, double w, double h, uint32_t colour)
{
    fprintf(file, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"#%06x\"/>\n",
            x, y, w, h, colour);
}

void mr_svg_text(FILE *file, double x, double y, enum mr_anchor anchor, bool bold, int size,
                 uint32_t colour, const char *text)
{
    static const char *const anchors[] = {"start", "middle", "end"};
    fprintf(file,
            "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%d\" fill=\"#%06x\" text-anchor=\"%s\"%s>", x,
            y + size * 0.35, size, colour, anchors[anchor], bold ? " font-weight=\"600\"" : "");
    mr_text_write_xml(text, file);
    fputs("</text>\n", file);
}

int mr_timeline_svg(FILE *file, const struct mr_timeline *tl)
{
    uint32_t height = mr_overview_height(tl);
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%u\" viewBox=\"0 0 %d "
            "%u\" "
            "font-family=\"system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif\" "
            "role=\"img\">\n<title>",
            MR_OVERVIEW_W, height, MR_OVERVIEW_W, height);
    mr_text_write_xml(tl->title, file);
    fputs("</title>\n", file);
    int rc = mr_overview_draw(tl, file);
    fputs("</svg>\n", file);
    return rc;
}
